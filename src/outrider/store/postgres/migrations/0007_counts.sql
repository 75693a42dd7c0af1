-- breaking
-- Queues by state and pending tasks by priority are counted as tasks are: in "counter" and "delta".
-- A worker of an earlier release would not count them.

alter table task add column blocks integer not null default 0; -- visits blocked since it was done

insert into counter (crawl, name, n)
select crawl, 'queues ' || state, count(*) from (
    select crawl, case
        when standing = 1 then 'ready'
        when standing = 2 then 'inactive'
        when retired is not null then 'retired'
        when paused then 'paused'
        when alarm_at > 0 then 'snoozed'
        when pending + in_flight + named > 0 then 'busy'
        else 'empty'
    end as state from queue
) as q group by crawl, state
on conflict (crawl, name) do update set n = excluded.n;

insert into counter (crawl, name, n)
select crawl, band, count(*) from (
    select (queue >> 40)::integer as crawl, case
        when priority <= -1000 then 'critical' when priority <= -100 then 'high' else 'low'
    end as band
    from (select queue, priority from pending union all select queue, priority from delayed) as p
    where priority <= -100 or priority >= 100
) as t group by crawl, band
on conflict (crawl, name) do update set n = excluded.n;
