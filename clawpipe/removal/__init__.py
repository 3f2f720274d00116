"""What leaves a home for good: what somebody asks to be forgotten, and what no night names any more."""
