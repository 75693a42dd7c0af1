"""The conformance suite over every store of conftest.py."""

from outrider.testing.conformance import (
    ActsConformance,
    AddConformance,
    AddressingConformance,
    AdminConformance,
    AgainConformance,
    AnswersConformance,
    BudgetConformance,
    CacheConformance,
    ClaimConformance,
    CountsConformance,
    CrawlConformance,
    DeletionConformance,
    DrawnDelayConformance,
    EventLogConformance,
    ExpiryConformance,
    FiltersConformance,
    FinishConformance,
    FocusConformance,
    ForgetConformance,
    HostsConformance,
    InspectConformance,
    KnownConformance,
    LanesConformance,
    LeaseConformance,
    LimitedClaimConformance,
    LoansConformance,
    LookupConformance,
    NotesConformance,
    NotificationsConformance,
    OrderConformance,
    PaceConformance,
    PolitenessConformance,
    PricingConformance,
    QueuesInOrderConformance,
    QueueTasksConformance,
    RestoringConformance,
    RetryingConformance,
    SavingConformance,
    SessionsConformance,
    SetKnownConformance,
    SettingConformance,
    SizesConformance,
    SnoozingConformance,
    StopsConformance,
    StoreValuesConformance,
    UntouchedConformance,
    UpcomingConformance,
    WaitingConformance,
    WorkersConformance,
    open_crawl,  # noqa: F401 - a fixture of every test here
)


class TestActs(ActsConformance): ...


class TestAdd(AddConformance): ...


class TestAddressing(AddressingConformance): ...


class TestAdmin(AdminConformance): ...


class TestAgain(AgainConformance): ...


class TestAnswers(AnswersConformance): ...


class TestBudget(BudgetConformance): ...


class TestCache(CacheConformance): ...


class TestClaim(ClaimConformance): ...


class TestCounts(CountsConformance): ...


class TestCrawl(CrawlConformance): ...


class TestDrawnDelay(DrawnDelayConformance): ...


class TestEventLog(EventLogConformance): ...


class TestExpiry(ExpiryConformance): ...


class TestFilters(FiltersConformance): ...


class TestForget(ForgetConformance): ...


class TestDeletion(DeletionConformance): ...


class TestSetKnown(SetKnownConformance): ...


class TestFinish(FinishConformance): ...


class TestFocus(FocusConformance): ...


class TestHosts(HostsConformance): ...


class TestInspect(InspectConformance): ...


class TestKnown(KnownConformance): ...


class TestLanes(LanesConformance): ...


class TestLease(LeaseConformance): ...


class TestLimitedClaim(LimitedClaimConformance): ...


class TestLoans(LoansConformance): ...


class TestLookup(LookupConformance): ...


class TestNotes(NotesConformance): ...


class TestNotifications(NotificationsConformance): ...


class TestOrder(OrderConformance): ...


class TestPace(PaceConformance): ...


class TestPoliteness(PolitenessConformance): ...


class TestPricing(PricingConformance): ...


class TestQueueTasks(QueueTasksConformance): ...


class TestQueuesInOrder(QueuesInOrderConformance): ...


class TestRestoring(RestoringConformance): ...


class TestRetrying(RetryingConformance): ...


class TestSaving(SavingConformance): ...


class TestSessions(SessionsConformance): ...


class TestSetting(SettingConformance): ...


class TestSizes(SizesConformance): ...


class TestSnoozing(SnoozingConformance): ...


class TestStops(StopsConformance): ...


class TestStoreValues(StoreValuesConformance): ...


class TestUntouched(UntouchedConformance): ...


class TestUpcoming(UpcomingConformance): ...


class TestWaiting(WaitingConformance): ...


class TestWorkers(WorkersConformance): ...
