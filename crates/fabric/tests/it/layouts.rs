//! The layouts of the crate against the C headers.

use fabric::abi::*;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

testing::tests![needs(FabricHeaders): the_layouts_are_those_of_the_headers];

/// A field: its structure and name in C, and its offset here.
type Field = (&'static str, &'static str, usize);

macro_rules! fields {
    ($($rust:ident = $c:literal { $($field:ident = $name:literal),* $(,)? })*) => {
        vec![$($(($c, $name, offset_of!($rust, $field))),*),*]
    };
}

fn fields() -> Vec<Field> {
    fields! {
        Fid = "struct fid" { fclass = "fclass", context = "context", ops = "ops" }
        FidOps = "struct fi_ops" { close = "close", bind = "bind", control = "control" }
        TransmitAttributes = "struct fi_tx_attr" {
            caps = "caps", mode = "mode", op_flags = "op_flags", msg_order = "msg_order",
            comp_order = "comp_order", inject_size = "inject_size", size = "size",
            iov_limit = "iov_limit", rma_iov_limit = "rma_iov_limit", tclass = "tclass",
        }
        ReceiveAttributes = "struct fi_rx_attr" {
            caps = "caps", mode = "mode", op_flags = "op_flags", msg_order = "msg_order",
            comp_order = "comp_order", total_buffered_recv = "total_buffered_recv",
            size = "size", iov_limit = "iov_limit",
        }
        EndpointAttributes = "struct fi_ep_attr" {
            kind = "type", protocol = "protocol", protocol_version = "protocol_version",
            max_msg_size = "max_msg_size",
        }
        DomainAttributes = "struct fi_domain_attr" {
            domain = "domain", name = "name", threading = "threading",
            control_progress = "control_progress", data_progress = "data_progress",
            resource_mgmt = "resource_mgmt", av_type = "av_type", mr_mode = "mr_mode",
            mr_key_size = "mr_key_size",
        }
        FabricAttributes = "struct fi_fabric_attr" {
            fabric = "fabric", name = "name", prov_name = "prov_name",
            prov_version = "prov_version", api_version = "api_version",
        }
        Info = "struct fi_info" {
            next = "next", caps = "caps", mode = "mode", addr_format = "addr_format",
            src_addrlen = "src_addrlen", dest_addrlen = "dest_addrlen", src_addr = "src_addr",
            dest_addr = "dest_addr", handle = "handle", tx_attr = "tx_attr", rx_attr = "rx_attr",
            ep_attr = "ep_attr", domain_attr = "domain_attr", fabric_attr = "fabric_attr",
        }
        FabricOps = "struct fi_ops_fabric" { size = "size", domain = "domain", trywait = "trywait" }
        Fabric = "struct fid_fabric" { fid = "fid", ops = "ops", api_version = "api_version" }
        CompletionAttributes = "struct fi_cq_attr" {
            size = "size", flags = "flags", format = "format", wait_obj = "wait_obj",
            signaling_vector = "signaling_vector", wait_cond = "wait_cond", wait_set = "wait_set",
        }
        AddressAttributes = "struct fi_av_attr" {
            kind = "type", rx_ctx_bits = "rx_ctx_bits", count = "count",
            ep_per_node = "ep_per_node", name = "name", map_addr = "map_addr", flags = "flags",
        }
        DomainOps = "struct fi_ops_domain" {
            av_open = "av_open", cq_open = "cq_open", endpoint = "endpoint",
        }
        RegistrationOps = "struct fi_ops_mr" { reg = "reg" }
        Domain = "struct fid_domain" { fid = "fid", ops = "ops", mr = "mr" }
        Registration = "struct fid_mr" { fid = "fid", mem_desc = "mem_desc", key = "key" }
        AddressOps = "struct fi_ops_av" { insert = "insert" }
        AddressVector = "struct fid_av" { fid = "fid", ops = "ops" }
        ConnectionOps = "struct fi_ops_cm" { setname = "setname", getname = "getname" }
        MessageOps = "struct fi_ops_msg" { recv = "recv", send = "send", inject = "inject" }
        EndpointFid = "struct fid_ep" { fid = "fid", cm = "cm", msg = "msg", rma = "rma" }
        RmaOps = "struct fi_ops_rma" { size = "size", read = "read" }
        CompletionEntry = "struct fi_cq_msg_entry" {
            op_context = "op_context", flags = "flags", len = "len",
        }
        ErrorEntry = "struct fi_cq_err_entry" {
            op_context = "op_context", flags = "flags", len = "len", buf = "buf", data = "data",
            tag = "tag", olen = "olen", err = "err", prov_errno = "prov_errno",
            err_data = "err_data", err_data_size = "err_data_size",
        }
        CompletionOps = "struct fi_ops_cq" { read = "read", readerr = "readerr" }
        CompletionQueue = "struct fid_cq" { fid = "fid", ops = "ops" }
    }
}

/// Expressions in C, and the same numbers here.
fn numbers() -> Vec<(&'static str, u64)> {
    vec![
        ("FI_VERSION(1, 17)", API_VERSION.into()),
        ("FI_MSG", FI_MSG),
        ("FI_RMA", FI_RMA),
        ("FI_READ", FI_READ),
        ("FI_REMOTE_READ", FI_REMOTE_READ),
        ("FI_RECV", FI_RECV),
        ("FI_SEND", FI_SEND),
        ("FI_TRANSMIT", FI_SEND),
        ("FI_SOURCE", FI_SOURCE),
        ("FI_CONTEXT", FI_CONTEXT),
        ("FI_CONTEXT2", FI_CONTEXT2),
        ("FI_ORDER_SAS", FI_ORDER_SAS),
        ("FI_MR_LOCAL", FI_MR_LOCAL as u64),
        ("FI_MR_VIRT_ADDR", FI_MR_VIRT_ADDR as u64),
        ("FI_MR_ALLOCATED", FI_MR_ALLOCATED as u64),
        ("FI_MR_PROV_KEY", FI_MR_PROV_KEY as u64),
        ("FI_MR_ENDPOINT", FI_MR_ENDPOINT as u64),
        ("FI_THREAD_DOMAIN", FI_THREAD_DOMAIN as u64),
        ("FI_PROGRESS_MANUAL", FI_PROGRESS_MANUAL as u64),
        ("FI_RM_ENABLED", FI_RM_ENABLED as u64),
        ("FI_AV_TABLE", FI_AV_TABLE as u64),
        ("FI_EP_RDM", FI_EP_RDM as u64),
        ("FI_WAIT_NONE", FI_WAIT_NONE as u64),
        ("FI_WAIT_FD", FI_WAIT_FD as u64),
        ("FI_CQ_FORMAT_MSG", FI_CQ_FORMAT_MSG as u64),
        ("FI_GETWAIT", FI_GETWAIT as u64),
        ("FI_ENABLE", FI_ENABLE as u64),
        ("FI_EAGAIN", (-EAGAIN) as u64),
        ("FI_EAVAIL", (-EAVAIL) as u64),
        ("FI_ADDR_UNSPEC", u64::MAX),
        ("sizeof(struct fi_context2)", size_of::<ContextWords>() as u64),
        ("sizeof(struct fi_cq_msg_entry)", size_of::<CompletionEntry>() as u64),
        ("sizeof(struct fi_cq_err_entry)", size_of::<ErrorEntry>() as u64),
    ]
}

fn the_layouts_are_those_of_the_headers() {
    let mut program = String::from(
        "#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n\
         #include <rdma/fi_cm.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_errno.h>\n\
         #include <rdma/fi_rma.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for (structure, field, _) in fields() {
        writeln!(program, "printf(\"%zu\\n\", offsetof({structure}, {field}));").expect("a string");
    }
    for (expression, _) in numbers() {
        writeln!(program, "printf(\"%llu\\n\", (unsigned long long)({expression}));")
            .expect("a string");
    }
    program.push_str("return 0; }\n");
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("layouts.c");
    let binary = directory.path().join("layouts");
    std::fs::write(&source, program).expect("it is written");
    let status = Command::new("cc").arg(&source).arg("-o").arg(&binary).status();
    assert!(status.expect("cc runs").success());
    let output = Command::new(&binary).output().expect("it runs");
    let printed = String::from_utf8(output.stdout).expect("numbers");
    let mut lines = printed.lines().map(|line| line.parse::<u64>().expect("a number"));
    for (structure, field, offset) in fields() {
        assert_eq!(lines.next(), Some(offset as u64), "{structure}.{field}");
    }
    for (expression, number) in numbers() {
        assert_eq!(lines.next(), Some(number), "{expression}");
    }
}
