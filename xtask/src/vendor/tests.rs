use super::*;
#[test]
fn zz_time() {
    let text = std::fs::read_to_string("/tmp/vtmp/cache2/bases/llama-0.5.0-9b671d41fad3/manifest").unwrap();
    for _ in 0..3 {
    let t = std::time::Instant::now();
    let d = Digest::of(text.as_bytes());
    eprintln!("digest {:?} {d}", t.elapsed());
    let t = std::time::Instant::now();
    let m = TreeManifest::parse(&text).unwrap();
    eprintln!("parse {:?} {}", t.elapsed(), m.len());
    let t = std::time::Instant::now();
    let mut n = 0u64;
    for e in walkdir::WalkDir::new("/tmp/vtmp/cache2/bases/llama-0.5.0-9b671d41fad3/tree") { n += e.unwrap().metadata().unwrap().len(); }
    eprintln!("walk {:?} {n}", t.elapsed());
    let t = std::time::Instant::now();
    for l in text.lines() { let _: Digest = l[..64].parse().unwrap(); }
    eprintln!("digests {:?}", t.elapsed());
    let t = std::time::Instant::now();
    for l in text.lines() { crate::tree::RelPath::new(&l[67..]).unwrap(); }
    eprintln!("paths {:?}", t.elapsed());
    }
}
