#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Err(broken) = llama_patchset::invariants::check_manifest(input) {
        panic!("{broken}");
    }
});
