/** Defines the flags of the log. */
import { flag } from '../../api/component/flags.ts';

const LOGS = 'Logs';

/** The rows by the property under which the program reads them. */
export const logsFlags = {
  verbosity: flag({
    name: 'v',
    type: 'integer',
    default: 0,
    group: LOGS,
    help: 'How much is logged: 0 what matters to operators, 4 what helps to find faults.',
  }),
  loggingFormat: flag({
    name: 'logging-format',
    type: 'string',
    default: 'text',
    choices: ['text', 'json'],
    group: LOGS,
    help: 'Format of the log on standard error.',
  }),
} as const;
