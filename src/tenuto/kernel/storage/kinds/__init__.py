"""The kinds of stores that Tenuto has itself: each a module with its declaration and how it is opened."""
