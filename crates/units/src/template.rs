//! Texts with placeholders.

/// Replaces each of `names` in `template` by its value, in one pass: a placeholder inside a value stays as it
/// is. Where several names fit, the first counts.
#[must_use]
pub fn fill<'a>(template: &'a str, names: &[&str], mut value: impl FnMut(usize) -> String) -> String {
    let first = |text: &'a str| {
        let found = names.iter().enumerate();
        found
            .filter_map(|(nth, name)| Some((text.find(name)?, nth, name.len())))
            .min()
    };
    let (mut filled, mut rest) = (String::with_capacity(template.len()), template);
    while let Some((at, nth, length)) = first(rest).filter(|(_, _, length)| *length > 0) {
        let (before, after) = rest.split_at(at);
        filled.push_str(before);
        filled.push_str(&value(nth));
        rest = after.split_at(length).1;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["{a}", "{b}"];

    #[test]
    fn values_are_not_expanded_again() {
        let values = ["{b}{b}{a}", "{a}{a}{b}"];
        let filled = fill("x{a}-{b}{a}y", &NAMES, |nth| values[nth].to_owned());
        assert_eq!(filled, "x{b}{b}{a}-{a}{a}{b}{b}{b}{a}y");
    }

    #[test]
    fn text_without_placeholders_stays() {
        for text in ["", "{c}", "{a", "a}", "{{a", "ä{"] {
            assert_eq!(fill(text, &NAMES, |_| "x".to_owned()), text);
        }
        assert_eq!(fill("{{a}}", &NAMES, |_| "ä".to_owned()), "{ä}");
        assert_eq!(fill("ab", &[""], |_| "x".to_owned()), "ab");
    }
}
