//! A file of tokens is what was written, or none.

use super::*;

fn store() -> Store {
    let mut store = Store::empty();
    let token = |i: u32| if i.is_multiple_of(3) { Token::given(i * 7) } else { Token::learned(i) };
    let tokens = |ids: std::ops::Range<u32>| ids.map(token).collect();
    store.push(&Encoded { tokens: tokens(0..5), last_label: None });
    store.push(&Encoded { tokens: tokens(6..7), last_label: Some(0) });
    store.push(&Encoded { tokens: Vec::new(), last_label: None });
    store.push(&Encoded { tokens: tokens(11..700_000), last_label: Some(11) });
    (store.broken, store.duplicates) = (4, 9);
    store
}

#[test]
fn a_file_has_the_tokens_and_places_that_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("a"), store());
    store.write(&mut File::create(&path).unwrap()).unwrap();
    let read = Store::open(&path).unwrap();
    assert_eq!((read.len(), read.broken, read.duplicates), (4, 4, 9));
    assert!(read.tokens() == store.tokens());
    for i in 0..4 {
        assert_eq!(read.place(i), store.place(i));
    }
    assert_eq!(read.place(0), (0, Place { end: 5, given: 1, last_label: None }));
    assert_eq!(read.place(1), (5, Place { end: 6, given: 1, last_label: Some(0) }));
    assert_eq!(read.place(2), (6, Place { end: 6, given: 0, last_label: None }));
    assert_eq!((read.place(3).0, read.place(3).1.last_label), (6, Some(11)));
}

/// Cut anywhere, longer, or with one other bit anywhere.
#[test]
fn a_damaged_file_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    store().write(&mut File::create(&path).unwrap()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let is_none = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Store::open(&path).is_none()
    };
    assert!(!is_none(&whole));
    for length in [0, 7, 47, 48, 63, whole.len() / 2, whole.len() - 1] {
        assert!(is_none(&whole[..length]), "{length}");
    }
    assert!(is_none(&[&whole[..], &[0; 4]].concat()));
    for byte in [0, 8, 15, 16, 24, 32, 33, 40, 44, 48, 63, 64, 111, 112, whole.len() / 2, whole.len() - 1] {
        let mut other = whole.clone();
        other[byte] ^= 16;
        assert!(is_none(&other), "{byte}");
    }
    assert!(Store::open(&folder.path().join("b")).is_none());
}
