//! Texts for readers, by value.

use super::*;

#[test]
fn a_terminal_gets_no_escapes() {
    let text = "a\u{1b}[2J\u{9b}1m\rb\u{202e}c\u{7f}\u{8}d";
    assert_eq!(on_terminal(text), "a\u{fffd}[2J\u{fffd}1m\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}d");
    let kept = "Grüße\t│ 2 × 3\r\n";
    assert_eq!(on_terminal(kept), kept);
}

#[test]
fn three_significant_digits() {
    let of = [(0.0, "0"), (0.012345, "0.0123"), (9.996, "10.0"), (12.34, "12.3"), (1234.4, "1234")];
    for (x, text) in of {
        assert_eq!(significant(x), text);
    }
    assert_eq!(seconds(0.01234), "12.3 ms");
    assert_eq!(seconds(2.0), "2.00 s");
    assert_eq!(seconds(45.6e-6), "45.6 µs");
}

#[test]
fn numbers_with_many_zeros_have_an_exponent() {
    let of =
        [(0.0, "0"), (1e-8, "1e-8"), (3e-4, "3e-4"), (1e-3, "0.001"), (65536.0, "65536"), (1e30, "1e30")];
    for (x, text) in of {
        assert_eq!(value(&x.into()), text);
    }
}

#[test]
fn digits_are_grouped_by_three() {
    let of = [(0, "0"), (123, "123"), (1234, "1,234"), (1_500_000_000, "1,500,000,000")];
    for (n, text) in of {
        assert_eq!(grouped(n), text);
    }
    assert_eq!([0.5, 92_760.6].map(rate), ["0.500", "92,761"]);
}

#[test]
fn names_with_commas_are_told_apart() {
    assert_eq!(names(["a", "b", "c"]), "a, b and c");
    assert_eq!(names(["a", "b, with c", "d"]), "a; b, with c; and d");
    assert_eq!(names(["b, with c"]), "b, with c");
    assert_eq!(names(["a", "“b, with c” (2 of 3)"]), "a and “b, with c” (2 of 3)");
    assert_eq!(names(["a (1.2, 3 % less)", "b"]), "a (1.2, 3 % less) and b");
    assert_eq!(few(["a", "b", "c", "d"], 2), "a, b and 2 more");
    assert_eq!(few(["a", "b"], 2), "a and b");
}

#[test]
fn a_shell_reads_an_argument_as_one_word() {
    assert_eq!(argument("recipes/overlap.toml"), "recipes/overlap.toml");
    assert_eq!(argument("my recipe.toml"), "'my recipe.toml'");
    assert_eq!(argument("report.title=\"it's\""), r#"'report.title="it'\''s"'"#);
    assert_eq!(argument(""), "''");
}

#[test]
fn percentages_have_no_sign() {
    assert_eq!(percent(-0.257), "26 %");
    assert_eq!(percent(0.004), "0.4 %");
    assert_eq!(percent(0.0096), "1 %");
    assert_eq!(percent(0.0), "0 %");
}

#[test]
fn byte_units_are_binary() {
    assert_eq!(byte_unit(1023.0), ("B", 1.0));
    assert_eq!(byte_unit(3.0 * 1048576.0), ("MiB", 1048576.0));
}
