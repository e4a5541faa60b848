//! Where a PDF has its texts and figures.

use typst::layout::{Abs, Frame, FrameItem};

use super::super::document::Table;
use super::*;

/// Every text and picture of a frame with its height on the page.
fn placed(frame: &Frame, above: Abs, out: &mut Vec<(Abs, String)>) {
    for (at, item) in frame.items() {
        let y = above + at.y;
        match item {
            FrameItem::Group(group) => placed(&group.frame, y, out),
            FrameItem::Text(text) => out.push((y, text.text.to_string())),
            FrameItem::Image(..) => out.push((y, "picture".into())),
            _ => {}
        }
    }
}

/// Page 1 keeps its order, and what is for reference begins on a page of its own.
#[test]
fn a_question_and_its_answer_stand_above_every_figure() {
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"180\"><rect width=\"9\" height=\"9\"/></svg>";
    let figure = || {
        let (name, caption) = ("time".into(), "Time of one step.".into());
        Element::Figure(Chart { name, caption, svg: svg.into() })
    };
    let document = Document {
        title: "Levels".into(),
        measured: "A device".into(),
        elements: vec![
            Element::paragraph("Questioned?"),
            Element::Summary { items: vec!["Answered.".into()] },
            figure(),
            Element::heading("What each method does"),
            Element::Appendix,
            figure(),
        ],
        ..Document::default()
    };
    let pages = set(&document).expect("a document");
    let mut found = Vec::new();
    placed(&pages.pages()[0].frame, Abs::zero(), &mut found);
    found.sort_by_key(|(y, _)| *y);
    let order: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    let place =
        |text: &str| order.iter().position(|of| *of == text).unwrap_or_else(|| panic!("{text}: {order:?}"));
    assert!(place("Questioned?") < place("Answered.") && place("Answered.") < place("picture"), "{order:?}");
    assert!(place("picture") < place("What each method does"), "{order:?}");
    assert!(pages.pages().len() == 2 && !order.contains(&"Appendix"), "{order:?}");
}

/// A text on a page: its left and right end, its baseline and its height.
struct Placed {
    text: String,
    ends: [f64; 2],
    baseline: f64,
    size: f64,
}

fn texts(frame: &Frame, origin: [f64; 2], out: &mut Vec<Placed>) {
    for (at, item) in frame.items() {
        let [x, y] = [origin[0] + at.x.to_pt(), origin[1] + at.y.to_pt()];
        match item {
            FrameItem::Group(group) => texts(&group.frame, [x, y], out),
            FrameItem::Text(text) => {
                let ends = [x, x + text.width().to_pt()];
                let size = text.size.to_pt();
                out.push(Placed { text: text.text.to_string(), ends, baseline: y, size });
            }
            _ => {}
        }
    }
}

/// Tables of the widths at which texts stood over their neighbours and headings were hyphenated, and one of words that no
/// column holds.
#[test]
fn no_text_of_a_table_stands_over_another() {
    let numbers =
        ["step time", "tokens/s", "peak memory", "TFLOP/s", "of the matmul rate", "× step", "× memory"];
    let table = |texts: &[&str], rows: &[&[&str]]| {
        let value = ["27.8 ms", "18,329", "6.34 MiB", "0.0157", "10 %", "5.38x", "0.86x"];
        let line =
            |texts: &[&str], rest: [&str; 7]| texts.iter().chain(&rest).map(ToString::to_string).collect();
        let caption = "Whole steps.".into();
        let rows = rows.iter().map(|row| line(row, value)).collect();
        Table { caption, header: line(texts, numbers), rows, texts: texts.len(), left_out: 0 }
    };
    let long = "a_folder_whose_name_has_no_place_to_break_at_all_however_long_it_gets";
    let tables = [
        table(&["method", "status"], &[&["dynamic scale, from 2¹⁶", "ok"], &["scale 2²²", "diverged"]]),
        table(&["sizes", "method"], &[&["batch size 4, qwen2.5-0.5b", "overlap, 12 resident blocks"]]),
        table(&["sizes", "method"], &[&[long, long], &["batch size 4, qwen2.5-7b", "naive"]]),
    ];
    for table in tables {
        let name = format!("{:?}", table.rows[0]);
        let words: Vec<String> = table.header.iter().flat_map(|of| of.split(' ')).map(String::from).collect();
        let elements = vec![Element::heading("All methods"), Element::Table(table)];
        let (title, measured) = ("Levels".into(), "A device".into());
        let document = Document { title, measured, elements, ..Document::default() };
        let pages = set(&document).expect("a document");
        let mut found = Vec::new();
        texts(&pages.pages()[0].frame, [0.0; 2], &mut found);
        for word in words {
            assert!(found.iter().any(|of| of.text.contains(&word)), "{name}: the heading's {word} is cut");
        }
        let width = pages.pages()[0].frame.width().to_pt();
        for (i, a) in found.iter().enumerate() {
            assert!(a.ends[1] < width, "{name}: {} is off the page", a.text);
            for b in &found[..i] {
                let beside = a.ends[1] < b.ends[0] + 0.5 || b.ends[1] < a.ends[0] + 0.5;
                let below = (a.baseline - b.baseline).abs() > 0.7 * a.size.min(b.size);
                assert!(beside || below, "{name}: {} and {}", a.text, b.text);
            }
        }
    }
}
