//! [`BlockNames`]: what the names of blocks' parameters begin with.

use std::sync::Arc;

/// Stacks of blocks, one after the other: the name of each, which stands before the number of a block in it, and how many
/// blocks it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockNames(Arc<[(&'static str, usize)]>);

impl BlockNames {
    pub fn new(stacks: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        Self(stacks.into_iter().collect())
    }

    /// Blocks of all stacks.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// What belongs to no single block has the first stack's name.
    pub fn shared(&self) -> &'static str {
        self.0.first().map_or("", |(name, _)| name)
    }

    /// Of a block by its number among those of all stacks: `model.layers.3`.
    ///
    /// # Panics
    /// When there is no such block.
    pub fn name(&self, mut block: usize) -> String {
        for (name, count) in &*self.0 {
            if block < *count {
                return format!("{name}.{block}");
            }
            block -= count;
        }
        panic!("there is no such block")
    }

    /// The block that has the parameter of this name, and its name within the block; `None` of any other.
    pub fn find<'n>(&self, name: &'n str) -> Option<(usize, &'n str)> {
        let mut before = 0;
        for (stack, count) in &*self.0 {
            let own = name.strip_prefix(stack).and_then(|rest| rest.strip_prefix('.')?.split_once('.'));
            if let Some((number, part)) = own {
                let number: usize = number.parse().ok()?;
                return (number < *count).then_some((before + number, part));
            }
            before += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_two_stacks_have_numbers_of_their_own() {
        let names = BlockNames::new([("encoder.block", 2), ("decoder.block", 3)]);
        assert_eq!((names.count(), names.shared()), (5, "encoder.block"));
        assert_eq!(
            [1, 2, 4].map(|block| names.name(block)),
            ["encoder.block.1", "decoder.block.0", "decoder.block.2"]
        );
        for block in 0..5 {
            assert_eq!(names.find(&format!("{}.a.weight", names.name(block))), Some((block, "a.weight")));
        }
        for other in
            ["encoder.block.2.a", "decoder.final_layer_norm.weight", "decoder.block.x.a", "shared.weight"]
        {
            assert_eq!(names.find(other), None, "{other}");
        }
    }
}
