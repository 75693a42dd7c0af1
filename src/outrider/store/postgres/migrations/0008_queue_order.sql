-- Keys by code points: the order in which queues are listed is that of no language.

create index queue_order on queue (crawl, key collate "C");
