//! The places of parameters in a block's buffer.

use super::*;

#[test]
fn parameters_begin_at_aligned_places_in_the_order_of_the_table() {
    let layout = layout(129, DType::BF16);
    let places: Vec<_> = layout.parts.iter().map(|part| (part.name.as_str(), part.first)).collect();
    assert_eq!(places, [("weight", 0), ("bias", 256)]);
    assert_eq!(layout.elements, 256 + 129);
}

/// Frozen parameters lie behind the trainable ones, and gradients have no room for them.
#[test]
fn gradients_are_as_large_as_what_is_trained() {
    let mut entries = ["weight", "bias"].map(|name| Entry {
        name: format!("blocks.0.{name}"),
        shape: vec![200],
        dtype: DType::F32,
        trainable: name == "bias",
        packed: false,
        split: None,
        group: Group::Block(0),
    });
    let layout = Layout::of(&entries, "blocks.0.");
    let places: Vec<_> = layout.parts.iter().map(|part| (part.name.as_str(), part.first)).collect();
    assert_eq!(places, [("bias", 0), ("weight", 256)]);
    assert_eq!((layout.trainable, layout.trainable_elements(), layout.elements), (1, 200, 456));
    // A block is made anew of them in the order of the table.
    assert_eq!(layout.made, [1, 0]);
    entries[1].trainable = false;
    assert_eq!(Layout::of(&entries, "blocks.0.").trainable_elements(), 0);
}
