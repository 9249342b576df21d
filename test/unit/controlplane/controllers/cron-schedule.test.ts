import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  dueTime,
  parseSchedule,
  type Schedule,
  ScheduleError,
} from '../../../../controlplane/controllers/cron-job/schedule.ts';

const iso = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString().slice(0, 16);
const next = (schedule: string, after: string, zone?: string): string | undefined =>
  iso(parseSchedule(schedule, zone).next(Date.parse(after)));

describe('a schedule', () => {
  const cases: readonly (readonly [string, string, string | undefined])[] = [
    ['*/15 * * * *', '2026-01-02T03:04:05Z', '2026-01-02T03:15'],
    ['0 0 * * *', '2026-01-02T00:00:00Z', '2026-01-03T00:00'],
    ['30 4 1,15 * *', '2026-01-02T00:00:00Z', '2026-01-15T04:30'],
    ['0 9-17/4 * * mon-fri', '2026-01-02T10:00:00Z', '2026-01-02T13:00'],
    ['0 9 * * MON', '2026-01-02T10:00:00Z', '2026-01-05T09:00'],
    ['0 0 31 * *', '2026-02-01T00:00:00Z', '2026-03-31T00:00'],
    ['0 0 29 2 *', '2026-01-01T00:00:00Z', '2028-02-29T00:00'],
    ['0 0 30 2 *', '2026-01-01T00:00:00Z', undefined],
    ['0 0 * dec *', '2026-01-01T00:00:00Z', '2026-12-01T00:00'],
    ['@hourly', '2026-01-02T03:04:05Z', '2026-01-02T04:00'],
    ['@weekly', '2026-01-02T03:04:05Z', '2026-01-04T00:00'],
    ['5/20 * * * *', '2026-01-02T03:06:00Z', '2026-01-02T03:25'],
    ['+5,,6, * * * *', '2026-01-02T03:05:30Z', '2026-01-02T03:06'],
    [', * * * *', '2026-01-02T03:05:30Z', undefined],
    ['*-7 * * * *', '2026-01-02T03:08:30Z', '2026-01-02T03:09'],
  ];
  for (const [schedule, after, wanted] of cases)
    test(`${schedule} after ${after} is ${wanted ?? 'never'}`, () => assert.equal(next(schedule, after), wanted));

  test('with both days given takes either', () => {
    assert.equal(next('0 0 13 * fri', '2026-01-02T00:00:00Z'), '2026-01-09T00:00');
    assert.equal(next('0 0 13 * fri', '2026-01-09T00:00:00Z'), '2026-01-13T00:00');
  });
  test('takes either day if one of them is every other day, and both if it is every day', () => {
    assert.equal(next('0 0 */10 * mon', '2026-01-02T00:00:00Z'), '2026-01-05T00:00');
    assert.equal(next('0 0 */10 * mon', '2026-01-05T00:00:00Z'), '2026-01-11T00:00');
    assert.equal(next('0 0 */1 * mon', '2026-01-05T00:00:00Z'), '2026-01-12T00:00');
  });
  test('that counts less than a second counts seconds', () => {
    for (const every of ['@every 10ms', '@every -1s', '@every 0s'])
      assert.equal(parseSchedule(every).next(1000), 2000, every);
    assert.throws(() => parseSchedule('@every x'), ScheduleError);
  });
  test('is read in its time zone', () => {
    assert.equal(next('0 9 * * *', '2026-01-02T00:00:00Z', 'Europe/Berlin'), '2026-01-02T08:00');
    assert.equal(next('0 9 * * *', '2026-07-02T00:00:00Z', 'Europe/Berlin'), '2026-07-02T07:00');
    assert.equal(next('15 5 * * *', '2026-01-02T00:00:00Z', 'Asia/Kolkata'), '2026-01-02T23:45');
  });
  test('that counts seconds continues from the given time', () => {
    const schedule = parseSchedule('@every 1m30s');
    assert.equal(schedule.next(Date.parse('2026-01-02T00:00:00Z')), Date.parse('2026-01-02T00:01:30Z'));
  });
  for (const wrong of [
    '',
    '* * * *',
    '60 * * * *',
    '* * 0 * *',
    '5-1 * * * *',
    '*/0 * * * *',
    'a * * * *',
    '* * * * 8',
  ])
    test(`cannot be ${JSON.stringify(wrong)}`, () => assert.throws(() => parseSchedule(wrong), ScheduleError));
});

describe('the due time of a cron job', () => {
  const counting = (schedule: Schedule): Schedule & { calls: number } => ({
    calls: 0,
    next(afterMs) {
      this.calls++;
      return schedule.next(afterMs);
    },
  });
  const nowMs = Date.parse('2026-03-08T12:00:30Z');

  for (const [text, zone, due, missed] of [
    ['* * * * *', 'UTC', '2026-03-08T12:00:00.000Z', 101],
    ['30 2 * * *', 'America/New_York', '2026-03-07T07:30:00.000Z', 101],
    ['0 0 1 1 *', 'UTC', '2026-01-01T00:00:00.000Z', 2],
    ['* * 1 1 *', 'UTC', '2026-01-01T23:59:00.000Z', 101],
    ['0 0 31 2 *', 'UTC', undefined, 0],
  ] as const)
    test(`${text} after two years of suspension takes few searches`, () => {
      const schedule = counting(parseSchedule(text, zone));
      const found = dueTime(schedule, { sinceMs: Date.parse('2024-03-01T00:00:00Z'), nowMs });
      assert.equal(found.due === undefined ? undefined : new Date(found.due).toISOString(), due);
      assert.equal(found.missed, missed);
      assert.ok(schedule.calls < 150, `${schedule.calls} searches`);
    });

  test('a day that no month has is found to be missing after few days were checked', () => {
    const format = Intl.DateTimeFormat.prototype.formatToParts;
    let read = 0;
    Intl.DateTimeFormat.prototype.formatToParts = function (...args) {
      read++;
      return format.apply(this, args);
    };
    try {
      assert.equal(parseSchedule('0 0 31 2 *', 'America/New_York').next(nowMs), undefined);
    } finally {
      Intl.DateTimeFormat.prototype.formatToParts = format;
    }
    assert.ok(read < 3000, `${read} local times`);
  });
});
