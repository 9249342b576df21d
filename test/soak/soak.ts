/** `npm run soak -- --minutes N [--only fault,fault] [--seed S]`: exits with 1 where the promise of the storage was broken. */
import { parseArgs } from 'node:util';
import { soak } from './run.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
    seed: { type: 'string', default: '' },
  },
});
const seed = values.seed === '' ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
const started = performance.now();
process.stdout.write(`seed ${seed}\n`);
const report = await soak({
  seconds: Number(values.minutes) * 60,
  seed,
  only: values.only === '' ? [] : values.only.split(','),
  onProgress: (line) => process.stdout.write(`${((performance.now() - started) / 1000).toFixed(1)} s ${line}\n`),
});
for (const [what, number] of [...report.counts].sort(([a], [b]) => (a < b ? -1 : 1)))
  process.stdout.write(`${String(number).padStart(8)} ${what}\n`);
for (const violation of report.violations) process.stdout.write(`VIOLATION ${violation}\n`);
process.stdout.write(
  report.violations.length === 0
    ? 'no violation\n'
    : `${report.violations.length} violations; replay with --seed ${seed}\n`,
);
process.exitCode = report.violations.length === 0 ? 0 : 1;
