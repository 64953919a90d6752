use super::*;
use proptest::prelude::*;

const DIFF: &str = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-- \n+-- x\n";

fn sample() -> Mail {
    Mail {
        author: Author {
            name: "Jörg Müller".into(),
            email: "j@example.org".into(),
        },
        date: "Sun, 29 Nov 2026 13:16:57 +0000".into(),
        part: Some(Part {
            number: 3,
            total: 12,
        }),
        subject: "[server] Ünïcode subject that is rather long so that it must be folded somewhere"
            .into(),
        body: "Why.\n\n  Indented.\n\nSigned-off-by: x".into(),
        notes: " f | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n".into(),
        diff: DIFF.into(),
    }
}

#[test]
fn looks_like_git_format_patch() {
    let text = String::from_utf8(write(&sample()).unwrap()).unwrap();
    insta::assert_snapshot!(text.replace("-- \n", "--<blank>\n"), @r"
    From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
    From: =?UTF-8?q?J=C3=B6rg=20M=C3=BCller?= <j@example.org>
    Date: Sun, 29 Nov 2026 13:16:57 +0000
    Subject: [PATCH 03/12] =?UTF-8?q?[server]=20=C3=9Cn=C3=AFcode=20subject=20?=
     =?UTF-8?q?that=20is=20rather=20long=20so=20that=20it=20must=20be=20folded?=
     =?UTF-8?q?=20somewhere?=
    MIME-Version: 1.0
    Content-Type: text/plain; charset=UTF-8
    Content-Transfer-Encoding: 8bit

    Why.

      Indented.

    Signed-off-by: x
    ---
     f | 2 +-
     1 file changed, 1 insertion(+), 1 deletion(-)

    diff --git a/f b/f
    --- a/f
    +++ b/f
    @@ -1,2 +1,2 @@
     a
    --<blank>
    +-- x
    ");
}

#[test]
fn only_the_bracket_that_says_patch_is_taken_off() {
    let subject = |text: &str| {
        let mail = format!(
            "From: a <a@b>\nDate: Sun, 29 Nov 2026 13:16:57 +0000\nSubject: {text}\n\n---\n\n{DIFF}"
        );
        let mail = read(mail.as_bytes()).unwrap();
        (
            mail.part.map(|part| (part.number, part.total)),
            mail.subject,
        )
    };
    assert_eq!(
        subject("[PATCH 3/7] [server] x"),
        (Some((3, 7)), "[server] x".into())
    );
    assert_eq!(subject("[PATCH] [a] [b] x"), (None, "[a] [b] x".into()));
    assert_eq!(
        subject("Re: [RFC PATCH v2 1/2] x"),
        (Some((1, 2)), "x".into())
    );
    assert_eq!(subject("[server] x"), (None, "[server] x".into()));
    assert_eq!(
        subject("[PATCH] folded\n over lines"),
        (None, "folded over lines".into())
    );
    assert_eq!(
        subject("[PATCH] =?iso-8859-1?Q?caf=E9?=\n =?UTF-8?B?w6Q=?= x"),
        (None, "caféä x".into())
    );
}

#[test]
fn a_header_in_the_body_counts_more_than_the_mails_own() {
    let text = format!(
        "From sender@host Sat Jan  3 01:05:34 1996\nFrom: Sender <s@host>\nDate: Sun, 29 Nov 2026 13:16:57 +0000\n\
         Subject: [PATCH] x\n\nFrom: \"A. Author\" <a@host>\n\nWhy.\n\n---\n remark\n\n{DIFF}-- \n2.47.3\n\n"
    );
    let mail = read(text.as_bytes()).unwrap();
    assert_eq!(
        (mail.author.name.as_str(), mail.author.email.as_str()),
        ("A. Author", "a@host")
    );
    assert_eq!(
        (mail.body.as_str(), mail.notes.as_str()),
        ("Why.", " remark\n")
    );
    assert_eq!(mail.diff, DIFF.as_bytes());
    assert_eq!(mail.files().unwrap().len(), 1);
}

#[test]
fn a_message_that_begins_like_a_header_survives() {
    let mut mail = sample();
    mail.body = "Subject: not the subject\n\nFrom: nobody".into();
    let text = write(&mail).unwrap();
    assert_eq!(read(&text).unwrap(), mail);
}

#[test]
fn what_would_not_be_read_back_is_not_written() {
    let refused = |change: fn(&mut Mail)| {
        let mut mail = sample();
        change(&mut mail);
        let error = write(&mail).unwrap_err();
        error.to_string()
    };
    assert!(refused(|mail| mail.body = "a\n---\nb".into()).contains("message"));
    assert!(refused(|mail| mail.body = "a\ndiff -u x y\nb".into()).contains("read back"));
    refused(|mail| mail.body = format!("a\nFrom {} Mon Sep 17 00:00:00 2001\nb", "0".repeat(40)));
    assert!(refused(|mail| mail.subject = " x".into()).contains("subject"));
    refused(|mail| mail.date = "yesterday".into());
    refused(|mail| mail.date = "Sun, 29 Nov 2026 13:16:57 +0000\nBcc: x".into());
    refused(|mail| mail.author.email = "a> <b".into());
    refused(|mail| mail.diff = b"prose\n".to_vec());
    refused(|mail| mail.diff.clear());
}

#[test]
fn transport_leaves_no_trace() {
    let mail = sample();
    let text = write(&mail).unwrap();
    let crlf = String::from_utf8(text.clone())
        .unwrap()
        .replace('\n', "\r\n");
    assert_eq!(read(crlf.as_bytes()).unwrap(), mail);
    let (head, body) = {
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\n\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    let mut quoted = String::new();
    for line in body.lines() {
        let line = line.replace('=', "=3D").replace('+', "=2B");
        // A soft line break, and a blank at a line's end.
        let line = line
            .strip_suffix(' ')
            .map(|line| format!("{line}=20"))
            .unwrap_or(line);
        let at = line.len() / 2;
        let soft = if line.is_char_boundary(at) && !line[..at].contains('=') && at > 1 {
            format!("{}=\r\n{}", &line[..at], &line[at..])
        } else {
            line
        };
        quoted.push_str(&format!("{soft}\r\n"));
    }
    let head = head
        .replace("8bit", "quoted-printable")
        .replace('\n', "\r\n");
    let text = format!("{head}\r\n\r\n{quoted}");
    assert_eq!(read(text.as_bytes()).unwrap(), mail);
    let text = text.replace("quoted-printable", "x-unknown");
    assert!(
        read(text.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("x-unknown")
    );
}

#[test]
fn base64_is_read_and_html_refused() {
    // `Why.` and a diff, with CR LF line ends as mails have them.
    let body = "V2h5Lg0KLS0tDQoNCi0tLSBhL2YNCisrKyBiL2YNCkBAIC0xICsxLDIgQEANCiBhDQorYg0K";
    let head = "From: a <a@b>\nDate: Sun, 29 Nov 2026 13:16:57 +0000\nSubject: x\n";
    let text = format!("{head}Content-Transfer-Encoding: BASE64\n\n{body}\n");
    let mail = read(text.as_bytes()).unwrap();
    assert_eq!(mail.body, "Why.");
    assert_eq!(mail.diff, b"--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n a\n+b\n");
    for kind in ["text/html", "multipart/mixed; boundary=x"] {
        let text = format!("{head}Content-Type: {kind}\n\n<p>\n");
        assert!(
            read(text.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("not text/plain")
        );
    }
}

#[test]
fn the_character_set_of_the_message_counts_and_the_diff_is_bytes() {
    let head = "From: a <a@b>\nDate: Sun, 29 Nov 2026 13:16:57 +0000\nSubject: x\nContent-Type: text/plain; charset=";
    let read_as = |charset: &str, message: &[u8]| {
        let diff = b"\n---\n\n--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n a\n+\xff\n";
        read(&[head.as_bytes(), charset.as_bytes(), b"\n\n", message, diff].concat())
    };
    let latin = read_as("iso-8859-1", b"caf\xe9").unwrap();
    assert_eq!(latin.body, "café");
    assert!(latin.diff.ends_with(b"+\xff\n"));
    assert_eq!(read_as("UTF-8", "café".as_bytes()).unwrap().body, "café");
    assert!(read_as("UTF-8", b"caf\xe9").is_err());
    assert!(
        read_as("koi8-r", b"x")
            .unwrap_err()
            .to_string()
            .contains("koi8-r")
    );
}

#[test]
fn line_ends_of_a_patched_file_are_kept() {
    let mut mail = sample();
    mail.diff = b"--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n a\r\n+b\r\n".to_vec();
    let text = write(&mail).unwrap();
    assert_eq!(read(&text).unwrap().diff, mail.diff);
}

#[test]
fn a_series_with_a_cover_letter_is_read_in_order() {
    let cover = "From 0 Mon Sep 17 00:00:00 2001\nFrom: a <a@b>\nDate: Sun, 29 Nov 2026 13:16:57 +0000\n\
                 Subject: [PATCH 0/2] All of it\n\nWhy.\n\n-- \n2.47.3\n\n";
    let mut text = cover.as_bytes().to_vec();
    for number in 1..=2 {
        let mut mail = sample();
        mail.part = Some(Part { number, total: 2 });
        text.extend(write(&mail).unwrap());
        text.extend(b"-- \n2.47.3\n\n");
    }
    let mails = read_mbox(&text).unwrap();
    assert_eq!(mails.len(), 3);
    assert_eq!((mails[0].body.as_str(), mails[0].diff.len()), ("Why.", 0));
    assert_eq!(
        mails[2].part,
        Some(Part {
            number: 2,
            total: 2
        })
    );
    assert_eq!(mails[2].diff, DIFF.as_bytes());
    assert!(
        read(&text)
            .unwrap_err()
            .to_string()
            .contains("more than one")
    );
}

#[test]
fn a_mail_that_was_cut_short_is_refused() {
    let text = write(&sample()).unwrap();
    for cut in text.len() - DIFF.len() + 20..text.len() {
        assert!(read(&text[..cut]).is_err(), "cut at {cut}");
    }
    let behind = [&text[..], b"Best regards\n"].concat();
    assert!(
        read(&behind)
            .unwrap_err()
            .to_string()
            .contains("behind its diff")
    );
}

proptest! {
    /// What is written is read back as the same, and written again as the same bytes.
    #[test]
    fn round_trip(name in "[ -~äß€]{1,40}", subject in "[ -~äß€\\[\\]]{1,120}",
                  body in "([ -~ä]{0,12}\n){0,6}", notes in "([ -~ä]{0,12}\n){0,3}",
                  part in prop::option::of((0..30u32, 1..30u32))) {
        let mut mail = sample();
        mail.author.name = name;
        mail.subject = subject;
        mail.body = body;
        mail.notes = notes;
        mail.part = part.map(|(number, total)| Part { number, total });
        if let Ok(text) = write(&mail) {
            let back = read(&text).unwrap();
            prop_assert_eq!(&back, &mail);
            prop_assert_eq!(write(&back).unwrap(), text);
        }
    }

    /// Subjects and names without odd blanks can always be written.
    #[test]
    fn usual_text_can_be_written(words in prop::collection::vec("[a-zä\\[\\](),.:=?_\"]{1,90}", 1..12)) {
        let text = words.join(" ");
        prop_assume!(!text.starts_with("[") && !text.to_lowercase().starts_with("re:"));
        let mut mail = sample();
        mail.subject = text.clone();
        mail.author.name = text;
        prop_assert!(write(&mail).is_ok(), "{:?}", write(&mail));
    }

    #[test]
    fn arbitrary_bytes_never_panic(text in prop::collection::vec(any::<u8>(), 0..300), cut in 0..400usize) {
        let _ = read_mbox(&text);
        let good = write(&sample()).unwrap();
        let _ = read_mbox(&[&good[..cut.min(good.len())], &text[..]].concat());
    }
}
