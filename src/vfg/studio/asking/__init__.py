"""The Ask and Graph pages: a model that is asked, the state of a question, cards, the graph."""
