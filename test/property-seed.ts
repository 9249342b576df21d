/**
 * `scripts/test` loads this file before each test file. It gives property tests one seed, so that a run can be repeated.
 * ORCHLET_TEST_SEED sets another seed; `random` leaves the choice to fast-check.
 */
import { configureGlobal } from 'fast-check';

const wanted = process.env['ORCHLET_TEST_SEED'] ?? '20261121';
if (wanted !== 'random') configureGlobal({ seed: Number(wanted) });
