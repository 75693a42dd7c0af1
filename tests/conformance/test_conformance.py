"""The conformance suite over every store of conftest.py."""

from outrider.testing.conformance import (
    AddConformance,
    AdminConformance,
    BudgetConformance,
    ClaimConformance,
    CrawlConformance,
    FiltersConformance,
    FinishConformance,
    HostsConformance,
    InspectConformance,
    LanesConformance,
    LeaseConformance,
    OrderConformance,
    PolitenessConformance,
    SessionsConformance,
    SettingConformance,
    StopsConformance,
    WaitingConformance,
)


class TestAdd(AddConformance): ...


class TestAdmin(AdminConformance): ...


class TestBudget(BudgetConformance): ...


class TestClaim(ClaimConformance): ...


class TestCrawl(CrawlConformance): ...


class TestFilters(FiltersConformance): ...


class TestFinish(FinishConformance): ...


class TestHosts(HostsConformance): ...


class TestInspect(InspectConformance): ...


class TestLanes(LanesConformance): ...


class TestLease(LeaseConformance): ...


class TestOrder(OrderConformance): ...


class TestPoliteness(PolitenessConformance): ...


class TestSessions(SessionsConformance): ...


class TestSetting(SettingConformance): ...


class TestStops(StopsConformance): ...


class TestWaiting(WaitingConformance): ...
