# The plots of the demo stories, in a small notation: [a|b] picks one, [a|] is optional, {x} is a field of the
# story (the same every time), {~x} draws a new word each time, a(n) becomes a or an. A plot may name the table
# of story_words.py whose row fills {t0}, {t1}, {t2}, {t3}.

INTROS = """
[Once upon a time, there was|Once there was|There once was|Long ago, there was|There was once]
a(n) [little|young|small|{trait}|{trait} little] {kind} named {name}. [{name}|{He}] lived {home}[| with {his} {parent}].
[{name} was very {trait2}.|{name} loved to {like}.|{He} liked {liking} more than anything.|Every day, {he} loved to
{like}.|Everyone knew that {name} was {trait2}.|{name} was {trait2} and loved to {like}.|]
---
[Once upon a time|One time|A long time ago], a(n) {trait} {kind} named {name} lived {home}.
[{His} best friend was a(n) {fkind} named {friend}.|{name} had a good friend named {friend}.|{name} and {his} friend
{friend} played every day.] [They loved to {like} together.|They did everything together.|They liked to play {game}.|]
---
{name} was a(n) {trait} [little|young] {kind} who [lived {home}|loved to {like}|liked {liking}].
[{sky}|{name} was never bored.|{He} had a friend named {friend}.|{He} always smiled at everyone.|]
---
[Once upon a time, in a place far away,|In a land far away,|Once upon a time,] there lived a(n) {kind}. {His} name was
{name}. {name} was {trait} and {trait2}. [{He} loved to {like}.|{He} was always {liking}.|]
---
Once upon a time, there [was a(n) {kind} called {name}|were two friends named {name} and {friend}|was a(n) {trait} {kind}
named {name}, who loved to {like}]. [{sky}|]
---
[{name} and {friend} were best friends.|{name} had a best friend, a(n) {fkind} named {friend}.] [They lived {home}.|They lived
not far from each other.|They loved to {like}.|] [{name} was {trait}, and {friend} was {trait2}.|{sky}|]
---
[{time}|One day], a(n) {trait} [little|young] {kind} named {name} went [for a walk|outside|out to play]. [{sky}|{He} loved {liking}.|{He}
felt very happy.|{He} lived {home}.] [{name} was {trait2}, too.|]
---
The [little|small|young] {kind} was [very {trait}|{trait} and {trait2}]. {His} name was {name}[| and {he} lived {home}].
[{He} loved {liking}.|{sky}|]
---
It was a [beautiful|lovely|warm|quiet] day. [{sky}|] A(n) [little|{trait}] {kind} named {name} was [{liking}|sitting {at}]. [{name} lived
{home}.|{He} was {trait2} and always {happy}.|]
"""

FRIEND = "[{friend}|{his} friend {friend}|{his} good friend {friend}]"

PLOTS = [
    # a lost thing is found
    ("HIDING", """
{time}, {name} could not find {his} {obj}. [It was {his} favorite {thing}.|{He} loved it very much.|It was a gift from
{his} {parent}.] {He} looked [everywhere|high and low|in every corner], but the {thing} was [gone|not there|nowhere to be
seen]. [{name} felt {sad}.|{name} began to cry.|{name} did not know what to do.] [{FRIEND} came to visit.|Then {FRIEND}
came by.] "[Why are you sad|What is wrong|Why do you look so {sad}], {name}?" asked {friend}. "[I lost my {thing}|I cannot
find my {thing}|My {obj} is gone]," said {name}. "[Do not worry|Do not cry]. [I will help you look|Let us look
together|We will find it]," said {friend}. They looked in [the kitchen|the garden|the hall|the box]. [It was not there.|They found
only an old sock.|Nothing.] Then they went to {t1}. {friend} [looked|peeked|pointed] {t0}. "[Look! Here it is|I see it|I found
it]!" {fhe} [shouted|cried|said]. [There was the {obj}|The {thing} was right there]! {name} [hugged {friend}|jumped for
joy|smiled a big smile]. [From then on, {he} always put the {thing} in a safe place.|"Thank you! You are the best
friend," said {name}.|{He} let {friend} hold the {thing}, too.]"""),
    # sharing
    (None, """
{time}, {name} got a(n) [new|{look}] {toy} from {his} {parent}. It was {colour} and {name} [loved it|played with it all
morning|wanted to keep it forever]. {He} took the {toy} to {place}. {FRIEND} saw it. "[Can I play with it|May I have a
turn|Can we play together], please?" asked {friend}. "No! It is mine," said {name}. {friend} [looked {sad}|felt
{sad}|looked down] and [walked away|sat alone|went to sit under a tree]. {name} played [alone|all by {himself}], but [it was not
much fun|it was boring|soon {he} felt lonely]. {He} looked at {friend} and [felt bad|thought for a while|remembered how
{friend} had always shared]. [Then {he} had an idea.|] {name} walked to {friend}. "[I am sorry|I was not kind]. [You can have a
turn|Let us play together|Please play with me]," {he} said. {friend} smiled. They played with the {toy} [all day|until
the sun went down|until it was time for dinner]. [It was much more fun together.|{name} learned that sharing is
fun.|They were both {happy}.]"""),
    # a fear
    ("FEARS", """
There was one thing that {name} did not like. {He} was afraid of {t0}. {time}, {name} was [with {FRIEND}|out with {his}
friend {friend}|playing with {friend}]. {t1}. [{name} began to shake.|{name} closed {his} eyes.|"Oh no!" cried {name}.] "I
am scared," {he} said. {friend} did not laugh. "[It is okay to be scared|Everyone is afraid of something|I was afraid of
that, too]," {fhe} said. "[I am here|You are not alone|I will stay with you]." Then {friend} {t2}. {name} took a deep
breath and [opened {his} eyes|tried again|looked once more]. [Slowly|Little by little|After a while], {he} saw that {t3}.
[{name} laughed.|{name} smiled.] "[It is not so bad|I am not afraid anymore|I did it]!" {he} said. {friend} [clapped|gave
{him} a hug|smiled at {him}]. [That night, {name} slept very well.|From that day on, {name} was a little braver.|{name} told
{his} {parent} all about it, and {phe} was very proud.]"""),
    # a broken thing is mended
    ("BROKEN", """
{time}, {name} was playing with {his} [favorite|{look}|{colour}] {t0}. [{He} was having so much fun.|{He} took it {at}.|]
Suddenly, [{name} tripped over a stone|the {t0} fell down|it hit the ground with a crash] and {t1}. "Oh no! [It is
broken|My {t0} is broken|I broke my {t0}]," said {name}. {He} felt very {sad}. {He} [ran|took it|carried it] to {the}
{worker}. "[Can you fix it|Can you help me], please?" {he} asked. {The} {worker} looked at the {t0}. "[Hmm, I think so|Yes, I
can|Let me see]," {whe} said. "[But I need a helper|You can help me|Watch closely]." [They worked together.|They sat at a
big table.|{name} held it very still.] {The} {worker} {t2}. [After a few minutes|Soon|At last], the {t0} was [as good as new|whole
again|ready]. "[Thank you so much|Thank you, thank you|You are amazing]!" said {name}. [{He} gave {the} {worker} a(n)
{food}.|{He} promised to be more careful.|{He} ran home to show {his} {parent}.] [{name} was {happy}.|{The} {worker} waved and smiled.|]"""),
    # a hurt animal
    ("HURT", """
{time}, {name} was walking {at}. {He} heard a [small|soft|sad] sound. It came from [behind a tree|under a bush|the side of the
path]. {name} looked and saw a {t0}. It had {t1}. "[Poor little {t0}|Oh dear|You poor thing]," said {name}. "[Do not be
afraid|I will help you|I want to help]." But {he} did not know how. {He} [called|ran to get|asked] {FRIEND}. {friend} [came
fast|came at once|had an idea]. Together, they helped the {t0}. They {t2}. [They gave it a little food and water.|They
were very gentle.|The {t0} was quiet and looked at them.|] [The next day|After some time|Soon], the {t0} felt [better|much
better|strong again]. It {t3}. [{name} and {friend} waved goodbye.|"Goodbye, little friend!" said {name}.] [They were {happy} that they had
helped.|Sometimes the {t0} came back to visit them.|{name} was a little sad to see it go, but {he} was also {happy}.]"""),
    # stuck
    ("STUCK", """
{time}, {name} and {friend} were playing [with a(n) {colour} {t0}|{at}|outside] [when something bad happened|when there was a
problem]. The {t0} got stuck {t1}. "[How will we get it back|What can we do|Now what]?" asked {name}. {friend} [tried to
reach it|jumped and jumped|pulled as hard as {fhe} could], but [it did not move|it was too hard|it did not work]. [{name} wanted to
give up.|"It is no use," said {name}.|They sat down and thought.] Just then, {the} {worker} came by. "[What is the
matter|Why do you look so {sad}], little ones?" {whe} asked. "[Our {t0} is stuck|We cannot get our {t0}]," said {friend}. {The} {worker}
[smiled|nodded|thought for a moment]. Then {whe} {t2}. "Hooray!" [cried {name}|they both shouted|said {friend}]. [They thanked {the}
{worker}|"Thank you very much," they said] [and played until dark|and went back to their game|with big smiles]. [This time, they were more
careful.|It was a good day after all.|]"""),
    # cooking
    ("DISHES", """
{time}, {name} wanted to make a {t0} for {his} {parent}. [It was a special day.|It was a surprise.|{He} had never made one before.]
{FRIEND} came to help. First, they {t1}. [It was a lot of fun.|There was flour on the floor and on their noses.|They sang while
they worked.|] But then {name} {t2}. "[Oh no|Oh dear]! [It is ruined|Now it is all wrong|What a mess]," said {name}. {He} was very {sad}.
"[We can try again|It is okay|Everyone makes mistakes]," said {friend}. "[Let us start over|We still have time|I know what to
do]." So they [cleaned up and|washed their hands and|] tried again. This time, they {t3}. [Soon the kitchen smelled
wonderful.|At last, the {t0} was ready.] {Parent} [came home|walked in] and [took a bite|had a taste]. "[This is the best
{t0} ever|How good it tastes|What a lovely surprise]!" {phe} said. {name} and {friend} [smiled at each other|were very {happy}|laughed].
[They all ate together.|{name} learned that {moral}.|]"""),
    # learning
    ("SKILLS", """
{name} wanted to learn to {t0}. [All the other children could do it.|{His} {parent} could do it very well.|It looked like
so much fun.] {time}, {he} tried for the first time. But {he} {t2}. [{name} tried again and again.|It was
harder than it looked.|"This is too hard," said {name}.] {He} felt {sad} and wanted to [stop|give up|go home]. {FRIEND} [was
watching|sat down next to {him}|came over]. "[Do not give up|I could not do it at first, too|You can do it]," said {friend}. "[You have to|Just|Remember to]
{t3}." {name} [nodded|listened carefully|wiped {his} eyes] and tried once more. [It was a little better.|It almost worked.|] Every day,
{he} practiced {at}. [{friend} helped {him}.|{friend} came to watch.|] [Then, one day,|At last,|After a week,] it worked! {name}
was {t1} all by {himself}. "[I did it|Look at me|I can do it]!" {he} shouted. {friend} [clapped and cheered|was so proud|gave {him} a big
hug]. [{name} learned that it is good to try again.|Now {name} could {t0} every day.|{name} felt very proud.]"""),
    # weather
    ("WEATHER", """
{time}, {name} and {friend} wanted to [have a picnic|play {game}|go for a walk] {at}. [They packed a(n) {food} and a(n)
{obj}.|They were very excited.|They had waited all week.] But [then|just as they left], {t0}. "[Now we cannot go|Our day is ruined|Oh
no]," said {name}. {He} was {sad}. {friend} looked out of the window. "[We can still have fun|I have an idea|Do not be
sad]," said {friend}. They stayed inside and {t1}. [They laughed so much.|It was warm and cozy.|{Parent} gave them a(n)
{food} to share.|] They [did not even see|forgot about] the time. [A little later|In the evening|After a while], {t2}. "Look!"
[said {friend}|cried {name}]. They [ran outside|went outside] and [danced|played {game}|looked at the sky]. "[This was the best day|That was a good
idea|I am glad we stayed together]," said {name}. [They were both {happy}.|And they went home tired and {happy}.|{friend} smiled.]"""),
    # planting
    ("PLANTS", """
{time}, {his} {parent} gave {name} a(n) {t0}. "[If you take care of it, it will grow|Be patient and you will see something
special|Put it in the ground]," {phe} said. {name} dug a small hole {at2} and [put it in|covered it with soil]. [Every day, {he}
looked at the ground.|The first day, nothing happened.|{He} waited and waited.] "[Why does it not grow|When will it grow]?" {name} asked.
"[Good things take time|You must wait|Be patient]," said {friend}. One morning, there was a tiny green leaf! {name} was so {happy}.
But then there was a problem. {t2}. {name} was afraid that [it would die|the plant would not live]. {FRIEND} came to help. {name} and
{friend} {t3}. [Day by day, it got stronger.|They took care of it together.|] At the end of the [summer|season], it was a
{t1}. [Everyone came to see it.|It was the most beautiful thing {at2}.] "[We did it together|Look how big it is|Thank you for your
help]," said {name}. {name} learned that [good things take time|a little care can do a lot|{moral}]."""),
    # a contest
    ("CONTESTS", """
{time}, there was a {t0} {at}. {name} wanted to [win|take part|try]. [{He} was a little nervous.|{He} had never done
it before.|] {friend} wanted to win, too. "[I will win for sure|I am the best|You will never win]," said {friend}. {name} only [smiled|said,
"Let us have fun."|shrugged]. [The {t0} began.|"One, two, three, go!" called {the} {worker}.] {friend} {t1}. {name} {t2}. [Everyone cheered.|It
was very exciting.|] In the end, [{name} won|the winner was {name}]! {He} got a(n) {obj}. {friend} was {sad}. [{name} saw this and walked
over.|{name} did not laugh.] "[You were very good, too|Next time you may win|I had fun with you]," said {name}. "[Do you want to share my
prize|Let us practice together|Let us be friends]?" {friend} [smiled|felt better]. "[I am sorry that I was rude|Thank you, {name}|Yes,
please]," {fhe} said. [From that day on, they practiced together.|They went home as good friends.|They shared a(n) {food} and laughed.]"""),
    # a wish
    ("WISHES", """
{time}, {name} found a(n) {obj} {at}. [{He} picked it up and cleaned it.|It was glowing.|{He} rubbed it with {his} hand.] [Suddenly|Just then], a
tiny {sprite} came out. "[You set me free|Thank you for finding me]! [You may have one wish|Make a wish|I will give you one
wish]," it said. {name} thought [for a while|hard|quickly]. "I wish for {t0}," {he} said. [Poof|Whoosh|Zap]! The wish came true.
[At first, {name} was very {happy}.|At first, it was wonderful.|{name} could not believe {his} eyes.] But soon {he} {t1}. {He} felt {sad}.
{FRIEND} came and [asked what was wrong|listened to the story]. "[Maybe you can change it back|Tell the truth and ask for help|We can go
back together]," said {friend}. They went back to {place}. "[Please take my wish away|I do not want this anymore]," said {name}. The little
{sprite} [smiled|laughed kindly] and everything was as before. {name} learned that {t2}. [{He} went home with {friend} and was {happy}.|{He} never
forgot that day.|]"""),
    # chores
    ("CHORES", """
{time}, {name} had to {t0}. "[Please do it before dinner|It must be done today|I need your help]," said {his} {parent}. [{name} did not want
to.|It was a big job.|{name} wanted to play instead.] {He} got {t1} and [started|began to work]. [But it was so much work.|After a
while, {he} was tired.|It took so long.] {He} sat down and [sighed|felt {sad}|looked at the sky]. {FRIEND} walked by. "[Do you want to play
{game}|Can you come and play]?" asked {friend}. "[I cannot|Not now]. I have to {t0} first," said {name}. "[Then I will help you|Two are faster
than one|We can make it a game]!" said {friend}. They worked together and [sang a song|told jokes|counted out loud]. [Soon|Before they knew it],
the work was done, and {t2}. {Parent} [was very pleased|was surprised] and gave them a(n) {food}. "[You are a good team|Well done|How nice of you
to help]," {phe} said. [Then they played until the stars came out.|{name} learned that work is easy with a friend.|They were both {happy}.]"""),
    # a lie and the truth
    ("BROKEN", """
{time}, {name} was [running|jumping|dancing] in the house. {Parent} had told {him} not to do it. {name} bumped into the table. {His} {parent}'s
{t0} fell down and {t1}. [{name} was scared.|{name}'s heart beat fast.] {He} hid the {t0} [under the bed|behind the curtain|in a box]. "[Where is my
{t0}|Have you seen my {t0}]?" asked {his} {parent}. "[I do not know|No, I have not]," said {name}. But {he} felt [bad|{sad}|very bad] inside.
{He} could not [eat|sleep|play]. {He} told {FRIEND} about it. "[You should tell the truth|The truth will make you feel better|Just say that you are
sorry]," said {friend}. So {name} [went to {his} {parent}|took the {t0} and went to {his} {parent}]. "[I broke it|It was me]. I am sorry," {he} said. {Parent} [was
quiet for a moment|looked at {him}]. "[Thank you for telling me the truth|I am glad that you told me]," {phe} said. They sat down and {t2}. {name}
[felt light and {happy}|smiled again|promised to be more careful]. [{He} learned that telling the truth is always best.|{He} never hid anything again.|]"""),
    # a new friend
    (None, """
{time}, a new {fkind} came to live [near {name}|next door|not far away]. [The new {fkind}|{FHis} name was {friend}. {friend}] was very shy and [sat alone
{at}|did not speak to anyone|always looked at the ground]. {name} [saw this|wanted to help|felt sorry]. {He} walked over and said, "[Hello|Hi]! My name is
{name}. [Do you want to play|What is your name|Would you like a(n) {food}]?" The {fkind} looked up. "[I am {friend}|My name is {friend}]," {fhe} said [in a
small voice|softly]. "[I do not know anyone here|I miss my old home|I have no friends here]." "[Now you know me|I can be your friend|We can be
friends]," said {name}. {name} showed {friend} {place}. They played {game} and [shared a(n) {food}|looked at a(n) {obj}|laughed a lot]. [{friend} was not so shy
anymore.|{friend} told a funny story.|] When it was time to go home, {friend} [smiled|waved]. "[Can we play again tomorrow|Will you come back
tomorrow]?" {fhe} asked. "[Yes, of course|Yes|I would love that]!" said {name}. [From then on, they were best friends.|And so they played every day.|{name} was
{happy} to have a new friend.]"""),
    # getting lost
    (None, """
{time}, {name} followed a(n) {colour} [butterfly|bird|leaf|balloon] into [the woods|the forest|the tall grass]. [{He} ran and ran.|{He} did not look
where {he} was going.|] When {he} stopped, {he} did not know where {he} was. "[Where am I|Which way is home|How do I get home]?" {he} said. [It was getting
dark.|The trees all looked the same.|There was no path.] {name} was {sad} and [sat down on a log|began to cry|called for help]. A(n) {animal} [heard
{him}|came out of a bush|was passing by]. "[Why are you crying|Are you lost|Can I help you], little {kind}?" asked the {animal}. "[I am lost|I cannot find my
home]," said {name}. "[What is near your home|What does your home look like]?" asked the {animal}. "I live {home}," said {name}. "[I know that place|I know the
way]! Follow me," said the {animal}. They walked [over a bridge|past a big rock|along a stream] and [up a hill|through the bushes|around a pond]. At last, {name}
saw {his} home. {His} {parent} [was waiting at the door|ran to {him}|hugged {him}]. "[I was so worried|There you are]!" {phe} said. {name} thanked the
{animal} and gave it a(n) {food}. [After that, {name} never went so far alone.|{name} was {happy} to be home.]"""),
    # a gift
    (None, """
It was the birthday of {FRIEND}. {name} wanted to give {fhim} [something special|a nice gift], but {he} had no money. [{name} was {sad}.|{name} thought and thought.]
"[A gift from the heart is the best gift|You can make something|It does not have to be big]," said {his} {parent}. So {name} went to {place}. {He} found
[a(n) {~colour} stone|a(n) {~colour} feather|three {~colour} flowers|some {~colour} leaves] and [a piece of string|some paper|a small box]. {He} worked [all morning|very
hard|for a long time]. [It was not easy.|{His} fingers were covered in glue.|] At last, {he} had made a(n) [lovely card|pretty crown|little bracelet|small
picture]. At the party, there were many big gifts. {name} was [a little shy|nervous]. "[This is for you|I made it myself]," {he} said. {friend} opened
it and [smiled a big smile|{fhis} eyes began to shine]. "[This is the best gift of all|I love it|It is so beautiful]!" {fhe} said. They [ate cake|danced|played {game}]
together. [{name} felt warm inside.|{name} was {happy}.|{name} learned that small things can make a big difference.]"""),
    # a quarrel
    (None, """
{time}, {name} and {friend} were {at}. They both saw a(n) {obj} on the ground. "[I saw it first|It is mine]!" said {name}. "No, [I saw it
first|it is mine]!" said {friend}. They [pulled and pulled|began to fight|shouted at each other]. [Then the {thing} fell into the mud.|Then both of them fell
down.|A(n) {animal} ran by and took the {thing} away.] {name} was angry and went home. {friend} was angry, too. But [the next day|that evening], {name} felt
{sad}. "[I miss {friend}|It is no fun without {friend}]," {he} told {his} {parent}. "[A friend is worth more than a {thing}|Why do you not say that you are
sorry|Someone has to be first to say sorry]," said {his} {parent}. {name} [ran|walked] to {friend}. "[I am sorry|I am sorry that I shouted]," {he} said.
"I am sorry, too," said {friend}. They [hugged|shook hands|laughed]. [Later, they found the {thing} again and shared it.|They went to look for the {thing}
together.|They gave the {thing} to {the} {worker}, who had lost it.] [They never fought about a {thing} again.|They were friends again, and both were {happy}.|{name} learned that
friends help each other.]"""),
    # too greedy
    (None, """
{time}, {name} found a(n) {look} [basket|box|bag] full of [apples|cookies|berries|nuts|carrots] {at}. "[How lucky I am|All this is for me]!" said
{name}. {FRIEND} came by and said, "[I am so hungry|I have not eaten today]. Can I have [one|some]?" "No, [I want it all|it is all mine]," said {name}. [{friend}
went away, very {sad}.|{friend} left without a word.] {name} ate and ate. Soon {his} belly hurt. {He} tried to carry the rest home, but it was too heavy. [The
bottom broke|{name} slipped] and everything fell [on the ground|into the water|down the hill]. "[Help|Can anyone help me]!" cried {name}. {friend} heard {him} and came
back. {friend} helped {name} [stand up|pick everything up|get home]. "[Why did you help me? I was not nice to you|You are so kind, and I was not]," said {name}. "[Friends
help each other|I could not leave you alone]," said {friend}. {name} [was ashamed|felt sorry]. {He} gave {friend} half of everything that was left. [It tasted
better when they ate together.|From then on, {name} always shared.|{name} learned that sharing makes everyone happy.]"""),
    # the strange noise
    (None, """
[One night|One dark night|One evening|Late one night], {name} heard a strange noise. [Tap, tap, tap.|Bump, bump.|Scratch, scratch.|Squeak, squeak.] It came from
[the roof|the kitchen|under the stairs|the garden|the closet]. "[What is that|Is it a monster|Who is there]?" {name} whispered. {He} [hid under the blanket|held {his} {obj}
tight|could not sleep]. {FRIEND} was staying for the night. "[Let us go and look|We can be brave together|Come on]," said {friend}. They took a [small
lamp|flashlight] and walked on the tips of their toes. [The noise got louder.|{name}'s heart beat fast.|] They [opened the door|looked around the corner] very slowly. It was
only a(n) {~colour} [{animal}|kitten|mouse]! It [was looking for food|was cold and wet|wanted to come in]. {name} [laughed|began to laugh]. "[You are not a
monster|You gave us a fright|Hello, little one]," {he} said. They gave it [some milk|a warm place to sleep|a(n) {food}]. [Then they all went to
sleep.|In the morning, it was still there, fast asleep.] [{name} was not afraid of noises anymore.|{name} learned that being brave does not mean being alone.|"Good night," said
{name}.]"""),
]

ENDINGS = """
---
The end.
---
[And they all lived happily ever after.|And that was the best day of all.|It was a very good day.]
---
[That night, {name} fell asleep with a smile.|That evening, {name} told {his} {parent} everything.|When the moon came up, {name} went to bed, tired and {happy}.]
---
From that day on, {name} [knew|remembered] that {moral}.
---
[{name} and {friend} stayed friends forever.|{name} and {friend} had many more days like this one.]
"""
