//! What is remembered of a series: any change is seen, and damage costs time only.
