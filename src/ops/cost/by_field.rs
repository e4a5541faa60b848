//! [`by_field!`]: sums and multiples of structs, field by field.

/// `by_field!(Add for S { a, b })` is S + S, and with `Mul<T>` S · T.
macro_rules! by_field {
    (Add for $of:ident { $($field:ident),+ }) => {
        impl std::ops::Add for $of {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field),+ }
            }
        }
    };
    (Mul<$by:ty> for $of:ident { $($field:ident),+ }) => {
        impl std::ops::Mul<$by> for $of {
            type Output = Self;

            fn mul(self, times: $by) -> Self {
                Self { $($field: self.$field * times),+ }
            }
        }
    };
}
pub(super) use by_field;
