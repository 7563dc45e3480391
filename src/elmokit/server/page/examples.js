// Examples for each view; the first is what the view opens with.

const lines = (...sentences) => sentences.join("\n");

export const EXAMPLES = {
  contexts: [
    {
      name: "bank",
      fields: {
        "contexts-word": "bank",
        "contexts-texts": lines(
          "She keeps her savings in a bank on the high street.",
          "He opened an account at a bank in Geneva.",
          "She borrowed the money from a bank in London.",
          "He worked for a bank in New York.",
          "They pulled the boat up on the muddy bank of the river.",
          "The village lies on the left bank of the Danube.",
          "The army camped on the east bank of the river.",
          "The town was built on the north bank of the Thames.",
        ),
      },
    },
    {
      name: "play",
      fields: {
        "contexts-word": "play",
        "contexts-texts": lines(
          "The children play in the garden after school.",
          "They play football every Sunday.",
          "He used to play for Manchester United.",
          "The boys play outside all day.",
          "Her new play opened at the National Theatre.",
          "The play was written by Shakespeare in 1599.",
          "The critics praised the play and its actors.",
          "A radio play was broadcast in the evening.",
        ),
      },
    },
    {
      name: "May",
      fields: {
        "contexts-word": "May",
        "contexts-texts": lines(
          "They were married in May 1920.",
          "The election was held on 5 May.",
          "In May the company was sold.",
          "The festival takes place every May.",
          "It may rain tomorrow.",
          "You may leave the room.",
          "This may be the reason.",
          "The species may be extinct.",
        ),
      },
    },
  ],
  similarity: [
    {
      name: "two games",
      fields: {
        "similarity-first": "The team won the match.",
        "similarity-second": "They lost the game on Sunday.",
      },
    },
    {
      name: "two banks",
      fields: {
        "similarity-first": "The bank refused to give a loan.",
        "similarity-second": "Willows grow on the bank of the river.",
      },
    },
  ],
  predict: [
    "studied law at the University of",
    "The river ___ into the sea.",
    "The novel was ___ in 1925 and ___ into English.",
    "They were married and had three",
    "The band released their first studio",
  ].map((text) => ({ name: text, fields: { "predict-text": text } })),
  search: [
    "cooking soup with vegetables",
    "the goalkeeper missed the ball",
    "an orchestra played a symphony",
    "parliament and president",
  ].map((text) => ({ name: text, fields: { "search-query": text } })),
};
