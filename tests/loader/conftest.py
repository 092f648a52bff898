"""What the loader's tests share: datasets, prepared once."""

from tests.loader.making import datasets as datasets
