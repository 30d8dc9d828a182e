//! Experiments that show what communication on this machine costs
