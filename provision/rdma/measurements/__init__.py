"""What measuring programs print, as data. Checks alone read it; garbled or cut output is Unknown."""
