"""Choose, pair and weigh training rows by steps of SQL, which count the rows that they filter by reason."""
