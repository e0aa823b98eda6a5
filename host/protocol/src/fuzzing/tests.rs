//! Recordings with bytes changed, cut out and put in, from a fixed seed.

use std::panic::catch_unwind;

use super::*;
use crate::golden;

/// Mutations of each recorded frame; more belongs to the fuzz targets.
const MUTATIONS_EACH: u32 = 10;

/// Recorded frames longer than this teach nothing new and take long.
const FRAME_BYTES_MAX: usize = 4096;

/// xorshift64*: a seed is all there is to replay a failure.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(high).unwrap_or_default() % bound.max(1)
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let byte = *b"\0\x01\x02\x7f\x80\xff{}[]\"\\:,0-"
                .get(self.below(16))
                .unwrap_or(&0);
            match self.below(4) {
                0 if !bytes.is_empty() => bytes[at] = byte,
                1 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at),
                _ => bytes.insert(at, byte),
            }
        }
    }
}

fn each_mutation(seed: u64, target: fn(&[u8]), part: fn(&golden::RecordedFrame) -> &[u8]) {
    let mut random = Random(seed);
    for frame in golden::frames() {
        let recorded = part(&frame);
        if recorded.len() > FRAME_BYTES_MAX {
            continue;
        }
        for _ in 0..MUTATIONS_EACH {
            let mut bytes = recorded.to_vec();
            random.mutate(&mut bytes);
            let outcome = catch_unwind(|| target(&bytes));
            assert!(
                outcome.is_ok(),
                "{}, seed {seed}: {bytes:02x?}",
                frame.place
            );
        }
    }
}

fn body(frame: &golden::RecordedFrame) -> &[u8] {
    let length = usize::try_from(golden::number(&frame.recorded["bodyLength"]));
    &frame.bytes[frame.bytes.len() - length.unwrap_or_default()..]
}

#[test]
fn changed_frames_are_commands_or_errors() {
    each_mutation(1, command, |frame| &frame.bytes[4..]);
}

#[test]
fn changed_bodies_are_bodies_or_errors() {
    each_mutation(2, bodies, body);
}

#[test]
fn changed_answers_are_messages_with_or_without_faults() {
    each_mutation(3, message, body);
}
