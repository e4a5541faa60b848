//! Records of TensorBoard's event files: <https://www.tensorflow.org/tutorials/load_data/tfrecord> and TensorFlow's
//! `event.proto` and `summary.proto`.

/// The first record of a file. `time`: seconds since 1970.
pub fn version(time: f64) -> Vec<u8> {
    let mut event = double(1, time);
    event.extend(bytes(3, b"brain.Event:2"));
    record(&event)
}

/// The numbers of a step, by their names. `time`: seconds since 1970.
pub fn scalars(time: f64, step: usize, numbers: &[(&str, f64)]) -> Vec<u8> {
    let value = |(name, number): &(&str, f64)| {
        let mut value = bytes(1, name.as_bytes());
        value.extend(key(2, 5));
        value.extend((*number as f32).to_le_bytes());
        bytes(1, &value)
    };
    let summary: Vec<u8> = numbers.iter().flat_map(value).collect();
    let mut event = double(1, time);
    event.extend(key(2, 0));
    event.extend(varint(step as u64));
    event.extend(bytes(5, &summary));
    record(&event)
}

/// Length, its checksum, data, their checksum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length).to_le_bytes(), data, &masked(data).to_le_bytes()].concat()
}

/// The key of a field of a protocol buffer. `kind`: 0 of a varint, 1 of eight bytes, 2 of a length and bytes, 5 of four bytes.
fn key(field: u64, kind: u64) -> Vec<u8> {
    varint(field << 3 | kind)
}

fn double(field: u64, value: f64) -> Vec<u8> {
    [key(field, 1), value.to_le_bytes().to_vec()].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [&key(field, 2), &varint(value.len() as u64), value].concat()
}

/// Seven bits a byte, the lowest first; the highest bit says that another follows.
fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// CRC-32C as the files have it: turned and shifted, since a file may itself hold checksums.
fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Castagnoli's polynomial, reflected, a bit at a time: an event has a few hundred bytes.
fn crc32c(data: &[u8]) -> u32 {
    let shift = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !data.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn numbers_are_written_by_seven_bits() {
        assert_eq!((varint(1), varint(300)), (vec![1], vec![0xac, 2]));
    }

    /// `tests/fixtures/tensorboard/make.py` wrote the file with TensorBoard's own writer.
    #[test]
    fn a_file_is_that_of_tensorboards_writer() {
        let numbers = [("loss", 2.5), ("learning_rate", 1e-3), ("memory_bytes", 1e9)];
        let own = [
            version(1764345678.125),
            scalars(1764345678.25, 1, &numbers),
            scalars(1764345679.5, 300, &numbers[..1]),
        ];
        let theirs =
            include_bytes!("../../../tests/fixtures/tensorboard/events.out.tfevents.1764345678.runner");
        assert_eq!(own.concat(), theirs);
    }
}
