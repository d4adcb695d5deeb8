//! Runs a mixture-of-experts model larger than memory by streaming its experts from the SSD
