//! What a follower does that a first rank of another recipe leads, or no first rank at all.

use serde_json::{Value, json};

use super::*;
use crate::common::Bytes;
use crate::run::join::leader::tests::{LIMIT, NOT_CANCELLED, cell, places};
use crate::run::join::reading::fingerprint;
use crate::run::testing::{of_ranks, shell};
use crate::world::Stream;

/// A first rank that knows the secret, but has another recipe or means to write elsewhere.
#[test]
fn a_follower_runs_no_cells_but_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let note = format!("printf '%s' \"$line\" >> {}/ran; echo \"$done\"", folder.path().display());
    let executor = shell(&of_ranks(&note));
    let mut own = cell(3);
    own.measure.memory_limit = Some(Bytes(1000));
    let mut places = places(2);
    let (last, second, first) = (places.remove(2), places.remove(1), places.remove(0));
    let cells = [own.clone(), cell(2), cell(1)];
    thread::scope(|scope| {
        let followers: Vec<_> = [&second, &last]
            .map(|place| scope.spawn(|| follow(&executor, &cells, place, LIMIT, &NOT_CANCELLED)))
            .into();
        let stream = first.seat(LIMIT).meet().unwrap().swap_remove(2).unwrap();
        let sender = Sender::new(stream.try_clone().unwrap(), Order::Alive);
        let mut reports = messages(stream);
        let mut ran = |cell: &Value, memory_limit: u64| -> Option<String> {
            let cell = fingerprint(cell);
            let start = Start { cell, memory_limit, trace: true, logged: false, meeting: "cell 1".into() };
            sender.send(&Order::Start(start)).unwrap();
            let ended = reports.by_ref().take_while(|report| !matches!(report, Report::Ended(_)));
            let lines: Vec<_> = ended.collect();
            lines.into_iter().find_map(|report| match report {
                Report::Line(Line::Event(Event::Failed { reason })) => Some(reason),
                _ => None,
            })
        };
        let mut other = own.to_json();
        other["save"] = json!({ "weights": "elsewhere" });
        // The last two have no rank 2.
        for cell in [other, cell(3).to_json(), cell(1).to_json(), cell(2).to_json()] {
            let reason = ran(&cell, 1).expect("it is refused");
            assert!(reason.contains("a cell that this rank's recipe does not have"), "{reason}");
            assert!(!folder.path().join("ran").exists());
        }
        assert_eq!(ran(&own.to_json(), u64::MAX), None);
        drop((reports, sender));
        followers.into_iter().for_each(|follower| _ = follower.join().unwrap());
    });
    let text = std::fs::read_to_string(folder.path().join("ran")).unwrap();
    let request: Request = serde_json::from_str(&text).unwrap();
    assert_eq!((request.cell, request.memory_limit), (own.to_json(), 1000));
    assert_eq!((request.seat.rank, request.seat.size), (2, 3));
    assert_eq!(request.trace, Some(PathBuf::new()));
}

#[test]
fn a_line_without_end_is_no_message() {
    let (own, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let writes = thread::spawn(move || {
        // Far more than an order has; what reads it has gone.
        let error = (0..1000).find_map(|_| std::io::Write::write_all(&mut &other, &[b' '; 4096]).err());
        assert!(error.is_some());
    });
    assert!(messages::<Order>(Stream::Local(own)).next().is_none());
    writes.join().unwrap();
}
