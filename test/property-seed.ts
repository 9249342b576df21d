/**
 * Loaded before each test file: property tests begin with one seed, so that a run can be repeated. ORCHLET_TEST_SEED chooses
 * another, or `random`.
 */
import { configureGlobal } from 'fast-check';

const wanted = process.env['ORCHLET_TEST_SEED'] ?? '20261121';
if (wanted !== 'random') configureGlobal({ seed: Number(wanted) });
