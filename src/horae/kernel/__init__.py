"""What is written? Text goes in, plain data comes out; pure."""
