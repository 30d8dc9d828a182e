//! The three forms of a local operation agree, refuse the same blocks, and have the names and
//! numbers they promise.

use goal::arithmetic::{
    Arithmetic, ArithmeticError, DataType, Element, apply, apply_in_place_left,
    apply_in_place_right,
};
use proptest::prelude::*;

/// The outcome and the destination of each form: three-address, left in place, right in place.
fn all_forms(
    operation: Arithmetic,
    data_type: DataType,
    left: &[u8],
    right: &[u8],
) -> [(Result<(), ArithmeticError>, Vec<u8>); 3] {
    let (mut three, mut in_left, mut in_right) =
        (vec![0x5a; left.len()], left.to_vec(), right.to_vec());
    [
        (apply(operation, data_type, left, right, &mut three), three),
        (apply_in_place_left(operation, data_type, &mut in_left, right), in_left),
        (apply_in_place_right(operation, data_type, left, &mut in_right), in_right),
    ]
}

proptest! {
    #[test]
    fn all_forms_agree(
        operation in prop::sample::select(Arithmetic::ALL.to_vec()),
        data_type in prop::sample::select(DataType::ALL.to_vec()),
        pairs in prop::collection::vec(any::<([u8; 16], [u8; 16])>(), 0..40),
        // Rarely drawn by chance in wide types, and what all forms must look at before they
        // overwrite it.
        zero_divisor in any::<Option<prop::sample::Index>>(),
        misalignment in 0_usize..8,
    ) {
        prop_assume!(operation.applies_to(data_type));
        let mut left = vec![0; misalignment];
        let mut right = vec![0; misalignment];
        left.extend(pairs.iter().flat_map(|pair| pair.0));
        right.extend(pairs.iter().flat_map(|pair| pair.1));
        let left = &left[misalignment..];
        let right = &mut right[misalignment..];
        if let (Some(zero_divisor), false) = (zero_divisor, pairs.is_empty()) {
            let size = data_type.bytes();
            let start = zero_divisor.index(right.len() / size) * size;
            right[start..start + size].fill(0);
        }
        let [three, in_left, in_right] = all_forms(operation, data_type, left, right);
        prop_assert_eq!(&three, &in_left);
        prop_assert_eq!(&three, &in_right);
    }
}

proptest! {
    #[test]
    fn long_blocks_give_the_same_bits_as_their_elements_one_by_one(
        operation in prop::sample::select(Arithmetic::ALL.to_vec()),
        data_type in prop::sample::select(DataType::ALL.to_vec()),
        // From blocks that are computed element by element to such as take the widest vectors, with
        // a rest.
        pairs in prop::collection::vec(any::<([u8; 16], [u8; 16])>(), 0..200),
        misalignment in 0_usize..8,
    ) {
        prop_assume!(operation.applies_to(data_type));
        let size = data_type.bytes();
        let mut left = vec![0; misalignment];
        let mut right = left.clone();
        left.extend(pairs.iter().flat_map(|pair| pair.0));
        right.extend(pairs.iter().flat_map(|pair| pair.1));
        let left = &left[misalignment..];
        let right = &right[misalignment..];
        let [three, in_left, in_right] = all_forms(operation, data_type, left, right);
        let mut expected = vec![0; left.len()];
        for ((left, right), result) in left.chunks(size).zip(right.chunks(size)).zip(expected.chunks_mut(size)) {
            // The outcome is that of the whole block.
            let _ = apply(operation, data_type, left, right, result);
        }
        prop_assert_eq!(&three.1, &expected);
        prop_assert_eq!(&in_left.1, &expected);
        prop_assert_eq!(&in_right.1, &expected);
    }
}

#[test]
fn each_type_has_the_operations_of_its_kind_and_a_refusal_writes_nothing() {
    for operation in Arithmetic::ALL {
        for data_type in DataType::ALL {
            let bitwise = ["and", "or", "xor"].contains(&operation.name());
            let is_defined = match data_type.name() {
                "f16" | "bf16" | "f32" | "f64" => !bitwise,
                "bit" => bitwise,
                "complexf32" | "complexf64" => ["add", "sub", "mul"].contains(&operation.name()),
                name if name.ends_with("at") => ["min", "max"].contains(&operation.name()),
                _ => true,
            };
            assert_eq!(operation.applies_to(data_type), is_defined);
            let [three, in_left, in_right] = all_forms(operation, data_type, &[1; 16], &[2; 16]);
            if !is_defined {
                let refused = Err(ArithmeticError::NotApplicable { operation, data_type });
                assert_eq!(three, (refused, vec![0x5a; 16]));
                assert_eq!(in_left, (refused, vec![1; 16]));
                assert_eq!(in_right, (refused, vec![2; 16]));
            } else {
                assert_eq!((three.0, in_left.0, in_right.0), (Ok(()), Ok(()), Ok(())));
            }
        }
    }
}

#[test]
fn blocks_of_different_lengths_are_refused() {
    let mut destination = [9; 8];
    for (left, right, bytes) in [(4, 8, 8), (8, 4, 8), (8, 8, 4), (0, 8, 8)] {
        let refused = ArithmeticError::LengthsDiffer { left, right, destination: bytes };
        let destination = &mut destination[..bytes];
        assert_eq!(
            apply(Arithmetic::Add, DataType::F32, &[1; 8][..left], &[1; 8][..right], destination),
            Err(refused)
        );
    }
    assert_eq!(
        apply_in_place_left(Arithmetic::Add, DataType::U8, &mut destination, &[1; 7]),
        Err(ArithmeticError::LengthsDiffer { left: 8, right: 7, destination: 8 })
    );
    assert_eq!(
        apply_in_place_right(Arithmetic::Add, DataType::U8, &[1; 7], &mut destination),
        Err(ArithmeticError::LengthsDiffer { left: 7, right: 8, destination: 8 })
    );
    assert_eq!(destination, [9; 8], "a refused operation writes nothing");
}

#[test]
fn broken_elements_are_refused() {
    for data_type in DataType::ALL {
        for bytes in 0..=33 {
            let whole = bytes % data_type.bytes() == 0;
            let of_all = [Arithmetic::Add, Arithmetic::And, Arithmetic::Minimum];
            let operation = of_all.into_iter().find(|one| one.applies_to(data_type));
            let operation = operation.expect("every type has one of them");
            for (outcome, _) in
                all_forms(operation, data_type, &[0; 33][..bytes], &[0; 33][..bytes])
            {
                let refused = Err(ArithmeticError::NotWholeElements { bytes, data_type });
                assert_eq!(outcome, if whole { Ok(()) } else { refused });
            }
        }
    }
}

#[test]
fn empty_blocks_are_no_division_by_zero() {
    for (outcome, _) in all_forms(Arithmetic::Divide, DataType::I32, &[], &[]) {
        assert_eq!(outcome, Ok(()));
    }
}

#[test]
fn numbers_and_names_lead_back() {
    for number in 0..=u8::MAX {
        let data_type = DataType::from_u8(number);
        assert_eq!(data_type, DataType::ALL.get(usize::from(number)).copied());
        assert!(data_type.is_none_or(|data_type| data_type as u8 == number));
        let operation = Arithmetic::from_u8(number);
        assert_eq!(operation, Arithmetic::ALL.get(usize::from(number)).copied());
        assert!(operation.is_none_or(|operation| operation as u8 == number));
    }
    for data_type in DataType::ALL {
        assert_eq!(data_type.to_string().parse(), Ok(data_type));
    }
    for operation in Arithmetic::ALL {
        assert_eq!(operation.to_string().parse(), Ok(operation));
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let error = "int".parse::<DataType>().expect_err("not a data type");
    assert_eq!(
        error.to_string(),
        "`int` is no data type; use one of u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, bit, u128, i128, \
         f16, bf16, complexf32, complexf64, i32at, i64at, f32at, f64at"
    );
    let error = "ADD".parse::<Arithmetic>().expect_err("names are in lower case");
    assert_eq!(
        error.to_string(),
        "`ADD` is no local operation; use one of add, sub, mul, div, min, max, and, or, xor"
    );
}

#[test]
fn errors_name_the_place_and_the_way_out() {
    let broken = ArithmeticError::NotWholeElements { bytes: 6, data_type: DataType::F32 };
    assert_eq!(
        broken.to_string(),
        "6 bytes are not a whole number of f32 elements; use a multiple of 4 bytes"
    );
    let zero = ArithmeticError::DivisionByZero { element: 3 };
    assert!(zero.to_string().contains("element 3"));
}

#[test]
fn elements_are_as_large_as_their_data_type() {
    fn check<T: Element>(name: &str) {
        assert_eq!(T::DATA_TYPE.name(), name);
        assert_eq!(size_of::<T>(), T::DATA_TYPE.bytes());
    }
    check::<u8>("u8");
    check::<u16>("u16");
    check::<u32>("u32");
    check::<u64>("u64");
    check::<i8>("i8");
    check::<i16>("i16");
    check::<i32>("i32");
    check::<i64>("i64");
    check::<f32>("f32");
    check::<f64>("f64");
    check::<u128>("u128");
    check::<i128>("i128");
    check::<goal::arithmetic::f16>("f16");
    check::<goal::arithmetic::bf16>("bf16");
    check::<goal::arithmetic::Complex<f32>>("complexf32");
    check::<goal::arithmetic::Complex<f64>>("complexf64");
    check::<goal::arithmetic::I32At>("i32at");
    check::<goal::arithmetic::I64At>("i64at");
    check::<goal::arithmetic::F32At>("f32at");
    check::<goal::arithmetic::F64At>("f64at");
}
