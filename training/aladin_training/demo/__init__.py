"""The demo's data set: drawn scenes whose captions only match if each word meets its object."""
