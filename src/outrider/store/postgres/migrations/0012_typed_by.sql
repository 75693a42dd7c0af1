-- What gave a task its type, if its link did not: a setting, or a rule of a built-in set.

alter table task add column typed_by text not null default ''; -- '': the link, or the default
