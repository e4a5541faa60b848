//! The recipe's `[ops]` section.

use crate::recipe::{Cell, Recipe, Source};

#[test]
fn kernel_fusion_is_a_setting_of_gpu_cells_whose_blocks_stay() {
    let parse = |device: &str, rest: &str| {
        let text = format!(
            "title = \"t\"\ndevice = \"{device}\"\n[model]\nkind = \"gpt2\"\npreset = \"gpt2\"\n[train]\n\
             batch_size = 1\nseq_len = 8\n[grid]\n\"ops.fusion\" = [false, true]\n{rest}"
        );
        let source = Source { path: "r.toml".into(), text };
        if device == "cpu" { Recipe::parse(&source) } else { Recipe::parse_finished(&source, false) }
    };
    let cells = parse("cuda:0", "").expect("a valid recipe").cells;
    let fusion = |cell: &Cell| cell.settings().get("ops.fusion").cloned();
    assert_eq!([fusion(&cells[0]), fusion(&cells[1])], [Some(false.into()), Some(true.into())]);
    let refused = |device, rest| format!("{:?}", miette::Report::new(parse(device, rest).unwrap_err()));
    assert!(refused("cpu", "").contains("this cell runs on the CPU"));
    assert!(refused("cuda:0", "[offload]\nstrategy = \"overlap\"\n").contains("does not go with offload"));
}
