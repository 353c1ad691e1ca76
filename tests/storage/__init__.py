"""What is kept between two starts."""
