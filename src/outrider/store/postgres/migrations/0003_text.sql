-- The URL of a task as its link gave it, for clients that know the task by it.

alter table task add column text text not null default ''; -- '': it is the URL, or not kept
