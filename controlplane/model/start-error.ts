/** Defines the error of a control plane that does not start. The command prints it without a stack. */
import { PlainError } from '../../api/component/plain-error.ts';

/** The flags or the host do not permit a start. */
export class StartError extends PlainError {
  override readonly name = 'StartError';
}
