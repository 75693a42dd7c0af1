-- The tasks of a queue in their order, without looking at those of others. Neither column of a task
-- ever changes but when a revisit moves it to another queue, so updates stay within their pages.

create index task_queue on task (queue, id);
