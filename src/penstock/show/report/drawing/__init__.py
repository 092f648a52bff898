"""Drawing: numbers and text -> charts, tables and a page, in which nothing from data can become markup."""
