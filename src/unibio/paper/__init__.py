"""The paper's figures, tables and claims, each reproduced or checked by one function."""
