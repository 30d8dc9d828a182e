//! Reduction operation and data type.

use crate::{Algorithm, Collective, CollectiveError};
use goal::arithmetic::{Arithmetic, DataType};

/// Operation that combines contributions, and the type of their elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The operation.
    pub operation: Arithmetic,
    /// The type of the elements.
    pub data_type: DataType,
}

impl Reduction {
    /// The operation on elements of the type.
    pub fn new(operation: Arithmetic, data_type: DataType) -> Self {
        Reduction { operation, data_type }
    }

    /// Bytes of an element.
    pub(crate) fn unit(self) -> u64 {
        self.data_type.bytes() as u64
    }

    /// That the operation exists on the type, and that this many bytes are whole elements.
    pub(crate) fn check(self, bytes: u64) -> Result<(), CollectiveError> {
        let Reduction { operation, data_type } = self;
        if !operation.applies_to(data_type) {
            return Err(CollectiveError::NotApplicable { operation, data_type });
        }
        if !bytes.is_multiple_of(self.unit()) {
            return Err(CollectiveError::NotWholeElements { bytes, data_type });
        }
        Ok(())
    }

    /// Returns `true` if the result depends on the order or the grouping of the operands: sums and
    /// products of floating-point numbers are rounded, differences and quotients are not
    /// associative.
    ///
    /// ```
    /// use collectives::Reduction;
    /// use goal::arithmetic::{Arithmetic, DataType};
    ///
    /// assert!(Reduction::new(Arithmetic::Add, DataType::F64).depends_on_order());
    /// assert!(!Reduction::new(Arithmetic::Add, DataType::I64).depends_on_order());
    /// assert!(!Reduction::new(Arithmetic::Maximum, DataType::F64).depends_on_order());
    /// ```
    pub const fn depends_on_order(self) -> bool {
        match self.operation {
            Arithmetic::Subtract | Arithmetic::Divide => true,
            Arithmetic::Add | Arithmetic::Multiply => self.data_type.is_float(),
            Arithmetic::Minimum | Arithmetic::Maximum => false,
            Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => false,
        }
    }

    /// Refuses an operation that depends on how operands are grouped, unless the algorithm, one of
    /// the collective's, folds from the left in rank order; and one that depends on their order,
    /// unless that is the same on all ranks.
    pub(crate) fn check_grouping(
        self,
        collective: Collective,
        algorithm: Algorithm,
    ) -> Result<(), CollectiveError> {
        collective.check_algorithm(algorithm)?;
        if collective.folds_from_left(algorithm) {
            return Ok(());
        }
        self.check_associative(algorithm)?;
        if !collective.has_common_order(algorithm) && self.depends_on_order() {
            let Reduction { operation, data_type } = self;
            let algorithm = algorithm.name();
            return Err(CollectiveError::DependsOnOrder { operation, data_type, algorithm });
        }
        Ok(())
    }

    /// Refuses an operation that depends on how operands are grouped.
    pub(crate) fn check_associative(self, algorithm: Algorithm) -> Result<(), CollectiveError> {
        let operation = self.operation;
        let algorithm = algorithm.name();
        if matches!(operation, Arithmetic::Subtract | Arithmetic::Divide) {
            return Err(CollectiveError::NotAssociative { operation, algorithm });
        }
        Ok(())
    }
}
