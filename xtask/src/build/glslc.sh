#!/bin/sh
# Runs the shader compiler, or hands out what an equal call gave before. Written by the build.
#
# LLAMA_PATCHSET_SHADERS names the folder of what is kept; it is of one compiler and of one set of
# included files. Without it, the compiler is just run.
compiler=@GLSLC@
kept=${LLAMA_PATCHSET_SHADERS-}

output= depfile= input= inputs=0 next=
for word do
    case $next in
        output) output=$word next= ;;
        depfile) depfile=$word next= ;;
        *)
            case $word in
                -o) next=output ;;
                -MF) next=depfile ;;
                -*) ;;
                *) input=$word inputs=$((inputs + 1)) ;;
            esac
            ;;
    esac
done

# What sed would take for something else, and calls of another form, are left alone.
case $output$depfile$input in
    *[\|\&\\]*) kept= ;;
esac
if [ -z "$kept" ] || [ "$inputs" != 1 ] || [ -z "$output" ] || [ "$output" = - ] || [ ! -f "$input" ]; then
    exec "$compiler" "$@"
fi

folder=${input%/*}
# Words that name no place, and the shader itself.
key=$({
    skip=
    for word do
        if [ -n "$skip" ]; then
            skip=
            continue
        fi
        case $word in
            -o | -MF) skip=1 ;;
            -*) printf '%s\n' "$word" ;;
            *) printf '%s\n' "${word##*/}" ;;
        esac
    done
    cat "$input"
} | sha256sum) || exec "$compiler" "$@"
entry=$kept/${key%% *}

if [ -f "$entry.spv" ] && { [ -z "$depfile" ] || [ -f "$entry.d" ]; }; then
    if [ -n "$depfile" ]; then
        sed -e "s|@FOLDER@|$folder|g" -e "s|@OUTPUT@|$output|g" "$entry.d" >"$depfile" || exit 1
    fi
    exec cp "$entry.spv" "$output"
fi

said=$("$compiler" "$@" 2>&1)
code=$?
if [ -n "$said" ]; then
    # Not kept: a warning must be said again.
    printf '%s\n' "$said" >&2
    exit "$code"
fi
[ "$code" = 0 ] || exit "$code"

# A full disk fails no build: then nothing is kept.
exec 2>/dev/null
[ -d "$kept" ] || exit 0
if [ -n "$depfile" ]; then
    sed -e "s|$output|@OUTPUT@|g" -e "s|$folder|@FOLDER@|g" "$depfile" >"$entry.$$.d" &&
        mv "$entry.$$.d" "$entry.d" || rm -f "$entry.$$.d"
fi
cp "$output" "$entry.$$.spv" &&
    mv "$entry.$$.spv" "$entry.spv" || rm -f "$entry.$$.spv"
exit 0
