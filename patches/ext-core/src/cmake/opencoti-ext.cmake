# opencoti: compiles the overlay files of the patches into upstream's targets and links the
# ggml-ext static library. Included once, from the root CMakeLists.txt, after all targets.
#
# A patch puts its new sources into one of the folders below and needs no build edits:
#
#   src/opencoti/*.cpp                       -> llama
#   common/opencoti/*.cpp                    -> llama-common
#   tools/server/opencoti/*.cpp              -> server-context
#   ggml/src/ggml-cpu/opencoti/*.c, *.cpp    -> ggml-cpu, or each of its variants
#
# The files are compiled with the flags of the target that they join. Properties are set on
# these files alone, never on a target: upstream's own files keep their compile commands.

# source file properties in the folder of a target: TARGET_DIRECTORY
if (CMAKE_VERSION VERSION_LESS 3.18)
    message(FATAL_ERROR "opencoti: CMake 3.18 or newer is needed, this is ${CMAKE_VERSION}")
endif()

set(OPENCOTI_EXT_LIB     "" CACHE FILEPATH "opencoti: the ggml-ext static library; empty: build without it")
set(OPENCOTI_EXT_INCLUDE "" CACHE PATH     "opencoti: folder with ggml-ext.h")

# adds the sources of the folder `dir` to `target` and names them in `result`
function(opencoti_add_sources target dir result)
    set(${result} "" PARENT_SCOPE)

    if (NOT TARGET ${target})
        return()
    endif()

    # an installed ggml cannot take sources
    get_target_property(is_imported ${target} IMPORTED)
    if (is_imported)
        return()
    endif()

    file(GLOB sources CONFIGURE_DEPENDS "${dir}/*.c" "${dir}/*.cpp")
    if (NOT sources)
        return()
    endif()

    # a file that joined a unity batch would change the batches of upstream's files
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target}
        PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_sources(${target} PRIVATE ${sources})

    set(${result} "${sources}" PARENT_SCOPE)
endfunction()

# links the ggml-ext library into `target`, whose overlay files are ARGN
function(opencoti_link_ext target)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES
        INCLUDE_DIRECTORIES "${OPENCOTI_EXT_INCLUDE}"
        COMPILE_DEFINITIONS OPENCOTI_HAVE_EXT)

    target_link_libraries(${target} PRIVATE "${OPENCOTI_EXT_LIB}")

    # what the Rust standard library needs
    if (UNIX)
        target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
    elseif (WIN32)
        target_link_libraries(${target} PRIVATE kernel32 ntdll userenv ws2_32 dbghelp)
    endif()

    # the symbols of the static library are no part of the backend's interface
    if (BUILD_SHARED_LIBS AND UNIX AND NOT APPLE)
        get_filename_component(name "${OPENCOTI_EXT_LIB}" NAME)
        target_link_options(${target} PRIVATE "LINKER:--exclude-libs,${name}")
    endif()
endfunction()

if (OPENCOTI_EXT_LIB)
    if (NOT EXISTS "${OPENCOTI_EXT_LIB}")
        message(FATAL_ERROR "opencoti: OPENCOTI_EXT_LIB is ${OPENCOTI_EXT_LIB}, but there is no such file")
    endif()
    if (NOT EXISTS "${OPENCOTI_EXT_INCLUDE}/ggml-ext.h")
        message(FATAL_ERROR "opencoti: no ggml-ext.h in OPENCOTI_EXT_INCLUDE (${OPENCOTI_EXT_INCLUDE})")
    endif()
    find_package(Threads REQUIRED)
    message(STATUS "opencoti: ggml-ext is ${OPENCOTI_EXT_LIB}")
else()
    message(STATUS "opencoti: building without ggml-ext (set OPENCOTI_EXT_LIB and OPENCOTI_EXT_INCLUDE to link it)")
endif()

opencoti_add_sources(llama          "${CMAKE_CURRENT_SOURCE_DIR}/src/opencoti"          OPENCOTI_SOURCES)
opencoti_add_sources(llama-common   "${CMAKE_CURRENT_SOURCE_DIR}/common/opencoti"       OPENCOTI_SOURCES)
opencoti_add_sources(server-context "${CMAKE_CURRENT_SOURCE_DIR}/tools/server/opencoti" OPENCOTI_SOURCES)

# backends that are loaded at run time cannot be called by name
if (OPENCOTI_SOURCES AND TARGET ggml-cpu AND NOT GGML_BACKEND_DL)
    set_source_files_properties("${CMAKE_CURRENT_SOURCE_DIR}/tools/server/opencoti/server-banner.cpp"
        TARGET_DIRECTORY server-context PROPERTIES COMPILE_DEFINITIONS OPENCOTI_CPU_BACKEND_LINKED)
endif()

foreach (backend IN LISTS GGML_AVAILABLE_BACKENDS)
    if (backend MATCHES "^ggml-cpu(-.+)?$")
        opencoti_add_sources(${backend} "${CMAKE_CURRENT_SOURCE_DIR}/ggml/src/ggml-cpu/opencoti" OPENCOTI_SOURCES)
        if (OPENCOTI_EXT_LIB AND OPENCOTI_SOURCES)
            opencoti_link_ext(${backend} ${OPENCOTI_SOURCES})
        endif()
    endif()
endforeach()
