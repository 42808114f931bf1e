import { ScrollArea, Stack, Table, Text, Title } from '@mantine/core'
import { useMemo, useState } from 'react'
import type { WhatIfAnswer } from '../../api/openapi'
import { Slots } from '../../charts/Slots'
import type { Range } from '../../lib/slots'
import { duration } from '../../lib/time'
import { courseOf, FIGURES, waitsByUser } from '../../lib/whatIf'

interface Props {
  answer: WhatIfAnswer
  /** What was asked for, in words. */
  asked: string
}

/** What happened, the same by the simulator, and what would have happened: figures, and two pictures of one scale. */
export function WhatIfAnswered({ answer, asked }: Props) {
  const [range, setRange] = useState<Range>()
  const [picked, setPicked] = useState<number>()
  const heads = { recorded: 'What happened', simulated: 'The same, simulated', changed: `With ${asked}` }
  const drawn = useMemo(
    () =>
      answer.courses
        .filter((course) => course.name !== 'simulated')
        .map((course) => ({ course, picture: courseOf(answer.agents, answer.courses, course) })),
    [answer],
  )
  const whole = {
    from: answer.start_us,
    until: Math.max(answer.start_us + 1_000_000, ...answer.courses.map((course) => course.end_us)),
  }
  return (
    <Stack>
      <ScrollArea>
        <Table aria-label="What happened and what would have happened" maw={800} miw={520}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Pool {answer.pool}</Table.Th>
              {answer.courses.map((course) => (
                <Table.Th key={course.name} ta="right">
                  {heads[course.name]}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {FIGURES.map(([name, shown]) => (
              <Table.Tr key={name}>
                <Table.Td>{name}</Table.Td>
                {answer.courses.map((course) => (
                  <Table.Td key={course.name} ta="right">
                    {shown(course.figures)}
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
            {waitsByUser(answer.courses).map(({ user, waits }) => (
              <Table.Tr key={`user ${user}`}>
                <Table.Td>Waiting of {user}, mean</Table.Td>
                {waits.map((wait, at) => (
                  <Table.Td key={answer.courses[at]?.name} ta="right">
                    {wait === undefined ? '–' : duration(wait)}
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </ScrollArea>
      <Text size="sm" c="dimmed">
        Up to position {answer.position} of the log.{' '}
        {answer.left_out > 0 && `${answer.left_out} trials are left out: older ones, and those that had not ended. `}
        Where the second column differs from the first, the simulator is not exact; compare the third with the second.
      </Text>
      {drawn.map(({ course, picture }) => (
        <section key={course.name} aria-label={heads[course.name]}>
          <Title order={3} size="h5">
            {heads[course.name]}
          </Title>
          {course.more > 0 && (
            <Text size="sm" c="dimmed">
              {course.more} later bars are left out of the picture.
            </Text>
          )}
          <Slots picture={picture} whole={whole} range={range} onRange={setRange} picked={picked} onPick={setPicked} />
        </section>
      ))}
    </Stack>
  )
}
