//! Addition and subtraction of quantities. A sum that does not fit is the largest quantity: addends come from
//! files of the kernel and of users.

/// Implements bounds, addition, subtraction and sums for a type that holds one `u64`.
macro_rules! arithmetic {
    ($quantity:ident) => {
        impl $quantity {
            /// Zero.
            pub const ZERO: Self = Self(0);
            /// No upper bound.
            pub const MAX: Self = Self(u64::MAX);

            /// The difference, or zero if `other` is larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl std::ops::Add for $quantity {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl std::ops::AddAssign for $quantity {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl std::ops::Sub for $quantity {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl std::ops::SubAssign for $quantity {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl std::iter::Sum for $quantity {
            fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
                values.fold(Self::default(), std::ops::Add::add)
            }
        }
    };
}

pub(super) use arithmetic;
