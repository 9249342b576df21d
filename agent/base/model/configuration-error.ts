/** The error of an agent that does not start because of its options. The command prints it without a stack. */
import { PlainError } from '../../../api/component/plain-error.ts';

/** The message has one line for each mistake. */
export class ConfigurationError extends PlainError {
  override readonly name = 'ConfigurationError';
}
