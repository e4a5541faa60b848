//! What the two sides learn from each other, and that nobody else passes for one of them.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, scope};

use super::*;

const LONG: Duration = Duration::from_secs(10);

fn soon() -> Instant {
    Instant::now() + LONG
}

fn party(secret: &str, rank: usize, size: usize) -> Party {
    Party { key: Key::derived(secret.as_bytes(), "test"), rank, size }
}

/// The two ends of a connection.
fn local() -> [Stream; 2] {
    let (a, b) = UnixStream::pair().unwrap();
    [Stream::Local(a), Stream::Local(b)]
}

fn network() -> [Stream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [caller, listener.accept().unwrap().0].map(Stream::Network)
}

/// What rank 2 and rank 0 make of each other.
fn greet(
    [caller, answers]: [Stream; 2],
    [calling, answering]: [Party; 2],
) -> (io::Result<Stream>, io::Result<Caller>) {
    scope(|scope| {
        let called = scope.spawn(move || call(&calling, 0, 77, caller, soon()));
        let answered = answer(&answering, answers, soon());
        (called.join().unwrap(), answered)
    })
}

fn is_denied<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
}

/// Test case 2 of RFC 4231.
#[test]
fn the_code_is_that_of_the_standard() {
    let code = keyed(b"Jefe").chain_update("what do ya want for nothing?").finalize().into_bytes();
    assert_eq!(hex(&code), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

#[test]
fn ranks_that_know_the_secret_learn_who_the_other_is() {
    for ends in [local, network] {
        let (called, answered) = greet(ends(), [party("secret", 2, 3), party("secret", 0, 3)]);
        let caller = answered.unwrap();
        assert_eq!((caller.rank, caller.port), (2, 77));
        (&caller.stream).write_all(b"on").unwrap();
        assert_eq!(&read::<2>(&mut called.unwrap(), soon()).unwrap(), b"on");
    }
}

#[test]
fn what_differs_is_denied_by_both() {
    let other = |key| Party { key, ..party("secret", 2, 3) };
    for calling in [
        party("", 2, 3),
        party("secre", 2, 3),
        party("secret", 2, 4),
        party("secret", 0, 3),
        other(Key::derived(b"secret", "tests")),
        other(Key::random().unwrap()),
    ] {
        for ends in [local, network] {
            let (called, answered) = greet(ends(), [calling.clone(), party("secret", 0, 3)]);
            assert!(is_denied(&answered) && is_denied(&called), "{calling:?}: {called:?} {answered:?}");
        }
    }
    // It calls another rank than the one that is there.
    let (called, answered) = greet(network(), [party("secret", 2, 3), party("secret", 1, 3)]);
    assert!(is_denied(&answered) && is_denied(&called));
}

#[test]
fn one_without_the_secret_gets_a_random_number_and_nothing_else() {
    let mut numbers = Vec::new();
    for sent in [vec![], vec![0; 58], vec![7; 70], vec![255; 100_000]] {
        let [mut stranger, answers] = network();
        let answered = scope(|scope| {
            let answered = scope.spawn(|| answer(&party("secret", 0, 3), answers, soon()));
            let mut number = [0; BYTES];
            stranger.read_exact(&mut number).unwrap();
            // It may be sent away before it has sent all.
            let _ = (&stranger).write_all(&sent);
            let _ = stranger.shutdown(std::net::Shutdown::Write);
            let mut more = Vec::new();
            let _ = stranger.read_to_end(&mut more);
            assert!(more.is_empty());
            numbers.push(number);
            answered.join().unwrap()
        });
        assert!(answered.is_err());
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 4, "each has another number");
}

/// Passes a handshake on between two connections, and returns what the caller sent.
fn hand_on(mut to_caller: Stream, mut to_answering: Stream) -> Vec<u8> {
    let number: [u8; BYTES] = read(&mut to_answering, soon()).unwrap();
    (&to_caller).write_all(&number).unwrap();
    let greeting: [u8; 2 * BYTES + 6] = read(&mut to_caller, soon()).unwrap();
    (&to_answering).write_all(&greeting).unwrap();
    if let Ok(proof) = read::<BYTES>(&mut to_answering, soon()) {
        (&to_caller).write_all(&proof).unwrap();
    }
    greeting.to_vec()
}

fn handed_on(ends: fn() -> [Stream; 2]) -> (io::Result<Stream>, io::Result<Caller>, Vec<u8>) {
    let ([caller, to_caller], [to_answering, answers]) = (ends(), ends());
    scope(|scope| {
        let between = scope.spawn(|| hand_on(to_caller, to_answering));
        let (called, answered) = greet([caller, answers], [party("secret", 2, 3), party("secret", 0, 3)]);
        (called, answered, between.join().unwrap())
    })
}

#[test]
fn a_greeting_is_worth_nothing_on_another_connection() {
    // Within a host both ends are this user's, so only the number is another one.
    let (called, answered, greeting) = handed_on(local);
    assert!(called.is_ok() && answered.is_ok());
    let [replayed, answers] = local();
    (&replayed).write_all(&greeting).unwrap();
    assert!(is_denied(&answer(&party("secret", 0, 3), answers, soon())));
    // Over the network the addresses are others too.
    let (called, answered, _) = handed_on(network);
    assert!(is_denied(&called) && is_denied(&answered), "{called:?} {answered:?}");
}

#[test]
fn a_proof_is_worth_nothing_in_the_other_direction() {
    for ends in [local, network] {
        let [caller, mut mirror] = ends();
        let called = scope(|scope| {
            let called = scope.spawn(move || call(&party("secret", 2, 3), 0, 0, caller, soon()));
            (&mirror).write_all(&[9; BYTES]).unwrap();
            let greeting: [u8; 2 * BYTES + 6] = read(&mut mirror, soon()).unwrap();
            (&mirror).write_all(&greeting[BYTES + 6..]).unwrap();
            called.join().unwrap()
        });
        assert!(is_denied(&called), "{called:?}");
    }
}

#[test]
fn slow_bytes_do_not_prolong_the_wait() {
    let [slow, answers] = network();
    let start = Instant::now();
    thread::spawn(move || {
        while (&slow).write_all(&[1]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let deadline = start + Duration::from_millis(400);
    assert!(answer(&party("secret", 0, 3), answers, deadline).is_err());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_key_is_not_shown() {
    assert_eq!(format!("{:?}", Key::derived(b"secret", "test")), "Key");
}
