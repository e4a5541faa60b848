//! How a method looks in every chart: its colour, and where there are more methods than colours its dashes too.

use plotters::style::RGBColor;

/// Okabe and Ito's colours, which colour-blind readers can also distinguish, with a light green for their yellow, which is too
/// pale on white, and indigo for their sky blue, which looks like a later phase of a blue bar.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(51, 34, 136),
    RGBColor(136, 204, 102),
    RGBColor(140, 105, 60),
];
/// Strength of a bar's colour in forward, backward and optimizer.
pub const PHASES: [(&str, f64); 3] = [("forward", 1.0), ("backward", 0.62), ("optimizer", 0.3)];
/// One of these; lines of one colour differ in their [`dash`].
pub fn method_color(method: usize) -> RGBColor {
    COLORS[method % COLORS.len()]
}

/// The colour mixed with white; 1 leaves it as it is.
pub fn tint(color: RGBColor, strength: f64) -> RGBColor {
    let mix = |c: u8| (255.0 - (255.0 - f64::from(c)) * strength).round() as u8;
    RGBColor(mix(color.0), mix(color.1), mix(color.2))
}

/// Pixels of a dash and of the gap after it, which distinguish lines of one colour: each round of the colours has its own, the
/// first none.
pub fn dash(method: usize) -> Option<[i32; 2]> {
    [None, Some([9, 4]), Some([2, 3])][method / COLORS.len() % 3]
}

#[cfg(test)]
mod tests {
    use itertools::Itertools;

    use super::*;

    /// CIE's L*, a* and b* of sRGB channels from 0 to 1.
    fn lab(channels: [f64; 3]) -> [f64; 3] {
        let [r, g, b] =
            channels.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        let root = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
        let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// What report.css does to a chart on a dark page: invert(0.91), then hue-rotate(180deg).
    fn on_dark(channels: [f64; 3]) -> [f64; 3] {
        let [r, g, b] = channels.map(|c| 0.91 - 0.82 * c);
        let rows = [[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]];
        rows.map(|[of_r, of_g, of_b]| (of_r * r + of_g * g + of_b * b).clamp(0.0, 1.0))
    }

    fn channels(RGBColor(r, g, b): RGBColor) -> [f64; 3] {
        [r, g, b].map(|c| f64::from(c) / 255.0)
    }

    /// Colours 20 apart are clearly different; 2 is what an eye just sees.
    fn apart(one: [f64; 3], other: [f64; 3]) -> f64 {
        let [one, other] = [one, other].map(lab);
        (0..3).map(|i| (one[i] - other[i]).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn methods_look_different_on_white_and_on_dark() {
        for (name, page) in [("white", (|c| c) as fn([f64; 3]) -> [f64; 3]), ("dark", on_dark)] {
            for (one, other) in (0..3 * COLORS.len()).tuple_combinations() {
                let [first, second] = [one, other].map(|method| page(channels(method_color(method))));
                let apart = apart(first, second);
                let dashes = dash(one) != dash(other);
                assert!(dashes || apart > 20.0, "{one} and {other} on {name}: {apart:.1}");
            }
        }
    }

    /// Later phases of a bar are paler.
    #[test]
    fn no_phase_of_a_bar_has_the_colour_of_another_method() {
        for (one, other) in (0..COLORS.len()).tuple_combinations().flat_map(|(a, b)| [(a, b), (b, a)]) {
            for (phase, strength) in PHASES {
                let apart = apart(channels(tint(COLORS[one], strength)), channels(COLORS[other]));
                assert!(apart > 20.0, "{phase} of {one} and {other}: {apart:.1}");
            }
        }
    }
}
