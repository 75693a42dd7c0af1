"""The statements' files: every statement has a contract, and the contract is the statement's."""

import re
from pathlib import Path

import pytest

import outrider.store.postgres
from outrider.store.postgres import sql
from outrider.store.postgres.columns import TABLES

PACKAGE = Path(outrider.store.postgres.__file__).parent
NAMES = sorted(sql.STATEMENTS)
IN_CODE = {"update_queues": 1, "update_tasks": 1}  # the columns are known when it is sent


def parts_of(name):
    """What a statement is for, its parameters, and its columns."""
    purpose, _, rest = f"\n{sql.STATEMENTS[name].contract}".partition("\nin:")
    given, _, returned = rest.partition("\nout:")
    return purpose.strip(), given.strip(), returned.strip()


def count_parameters(given):
    """How many parameters a contract names; those of a table are one for each column."""
    given = re.sub(r"\([^)]*\)", "", given)
    names = [name.strip() for name in given.replace("\n", " ").split(",") if name.strip()]
    tables = [re.fullmatch(r"\{rows (\w+)\}", name) for name in names]
    return sum(len(TABLES[table[1]]) if table else 1 for table in tables)


@pytest.mark.parametrize("name", NAMES)
def test_statement_has_a_contract(name):
    """M4: its parameters are those it names, in number at least, and it says what it returns."""
    _, given, returned = parts_of(name)

    assert returned
    if name not in IN_CODE:
        text = sql._text(name)
        assert count_parameters(given) == text.count("%s"), given


def test_every_statement_is_sent_by_the_store():
    """M4: what no module sends is deleted."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py"))
    unused = {name for name in NAMES if not re.search(rf"sql\.{name}\b", code, re.IGNORECASE)}

    assert not unused


def test_no_module_writes_sql_itself():
    """M4: statements are found in the files, with their contracts."""
    statement = re.compile(r"\"\s*(select|insert into|update|delete from) \w")
    found = [path.name for path in PACKAGE.glob("*.py") if statement.search(path.read_text())]

    assert not found


def test_placeholder_of_an_unknown_table_is_refused():
    """M4: a misspelt table fails at import, not on a server."""
    with pytest.raises(KeyError):
        sql._fill_columns("select {names no_such_table} from task")
